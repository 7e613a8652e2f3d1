//! Programs of other systems in compiled computations: a message of any type, in the place of an
//! XLA module. Who doesn't know the type passes the computation on unread.

use prost::Message;

use crate::Name;
use crate::ast::{Data, Language, WirePayload};

#[derive(Clone, PartialEq, Message)]
struct Xla {
    #[prost(message, optional, tag = "1")]
    hlo_module: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The payload that holds this program.
pub fn embed(program: &Data) -> WirePayload {
    let type_url = program.type_url.to_string();
    let any = Any { type_url, value: program.value.to_vec() };
    let bytes = Xla { hlo_module: Some(any) }.encode_to_vec();
    WirePayload { language: Language::Xla, bytes: bytes.into() }
}

/// The program that a payload holds, if it holds one.
pub fn embedded(payload: &WirePayload) -> Option<Data> {
    if payload.language != Language::Xla {
        return None;
    }
    let any = Xla::decode(&*payload.bytes).ok()?.hlo_module?;
    Some(Data { type_url: Name::from(any.type_url), value: any.value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_out_as_it_went_in() {
        let program = Data { type_url: "a/b".into(), value: [0, 1, 255].as_slice().into() };
        let payload = embed(&program);
        assert_eq!(payload.bytes[..], *b"\x0a\x0a\x0a\x03a/b\x12\x03\x00\x01\xff");
        assert_eq!(embedded(&payload), Some(program));
        let other = WirePayload { language: Language::TensorFlow, ..payload };
        assert_eq!(embedded(&other), None);
        let torn = WirePayload { language: Language::Xla, bytes: [10, 200].as_slice().into() };
        assert_eq!(embedded(&torn), None);
    }
}
