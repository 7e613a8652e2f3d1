//! The message `Computation`.

use std::sync::Arc;

use super::super::read::{Fault, Member, Message, Read, made};
use super::super::{array, default_name};
use super::{Decoder, Place, Work};
use crate::Name;
use crate::array::Array;
use crate::ast::{BuildingBlock, Compiled, Data, Language, WirePayload};
use crate::error::{Class, Error, Result};
use crate::intrinsics;
use crate::placement::Placement;
use crate::types::Type;

/// What a block is built from, beside the blocks in it.
pub struct Parts {
    /// Whether the message says the block's type.
    typed: bool,
    kind: Kind,
}

enum Kind {
    Reference(Name),
    Intrinsic(Name),
    Data(Data),
    Placement(Placement),
    Literal(Array),
    Compiled(WirePayload),
    Selection(i32),
    Struct(Box<[Option<Name>]>),
    Call { argument: bool },
    Lambda(Option<Name>),
    Block(Box<[Name]>),
}

impl Kind {
    /// Whether its type follows from what is in it.
    fn is_typed_by_parts(&self) -> bool {
        matches!(
            self,
            Self::Placement(_)
                | Self::Selection(_)
                | Self::Struct(_)
                | Self::Call { .. }
                | Self::Lambda(None)
                | Self::Block(_)
        )
    }
}

impl Decoder<'_> {
    pub fn read_block(&mut self, place: Place, message: &Message) -> Read<()> {
        let mut ty = Message::missing(message.at());
        let mut member = Member::none(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => ty.merge(field)?,
                2..=12 | 14 => member.set(field)?,
                _ => {}
            }
        }
        let mut inside = Vec::new();
        let kind = self.kind(member, &mut inside)?;
        let typed = !(ty.is_missing() && kind.is_typed_by_parts());
        self.push(place, message.at(), Work::BuildBlock(Parts { typed, kind }));
        for (place, message) in inside.into_iter().rev() {
            self.push_block(place, message);
        }
        if typed {
            self.push(Place::Field("type"), ty.at(), Work::KnownType(ty));
        }
        Ok(())
    }

    /// The block in a member of `Computation`, and the messages `Computation` in that member.
    fn kind(&mut self, member: Member, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let Member { number, message } = member;
        let payload = |language| {
            let bytes = Arc::from(message.bytes(self.input));
            Ok(Kind::Compiled(WirePayload { language, bytes }))
        };
        match number {
            2 => payload(Language::TensorFlow),
            3 => Ok(Kind::Intrinsic(self.only_name(&message)?)),
            4 => self.lambda(&message, inside),
            5 => self.block(&message, inside),
            6 => Ok(Kind::Reference(self.only_name(&message)?)),
            7 => self.call(&message, inside),
            8 => self.structure(&message, inside),
            9 => self.selection(&message, inside),
            10 => Ok(Kind::Data(self.data(&message)?)),
            11 => Ok(Kind::Placement(self.placement(&message)?)),
            12 => payload(Language::Xla),
            14 => self.literal(&message),
            _ => {
                let what = "the computation is of no kind we know";
                made(message.at(), Err(Error::new(Class::NotImplemented, what)))
            }
        }
    }

    /// The first field, the only one, of a message: a name or uri.
    fn only_name(&mut self, message: &Message) -> Read<Name> {
        let mut name = None;
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                name = Some(self.name(field.span()?)?);
            }
        }
        Ok(name.unwrap_or_else(|| Name::from("")))
    }

    fn lambda(&mut self, message: &Message, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let (name, result) = self.named(message)?;
        inside.push((Place::Field("lambda.result"), result));
        Ok(Kind::Lambda(name))
    }

    fn block(&mut self, message: &Message, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let mut names = Vec::new();
        let mut result = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => {
                    let (name, value) = self.named(&Message::new(field.span()?))?;
                    inside.push((Place::Item("block.local", names.len()), value));
                    names.push(name.unwrap_or_else(|| Name::from("")));
                }
                2 => result.merge(field)?,
                _ => {}
            }
        }
        inside.push((Place::Field("block.result"), result));
        Ok(Kind::Block(names.into()))
    }

    fn call(&mut self, message: &Message, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let mut function = Message::missing(message.at());
        let mut argument = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => function.merge(field)?,
                2 => argument.merge(field)?,
                _ => {}
            }
        }
        inside.push((Place::Field("call.function"), function));
        let has_argument = !argument.is_missing();
        if has_argument {
            inside.push((Place::Field("call.argument"), argument));
        }
        Ok(Kind::Call { argument: has_argument })
    }

    fn structure(&mut self, message: &Message, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let mut names = Vec::new();
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                let (name, value) = self.named(&Message::new(field.span()?))?;
                inside.push((Place::Item("struct.element", names.len()), value));
                names.push(name);
            }
        }
        Ok(Kind::Struct(names.into()))
    }

    fn selection(&mut self, message: &Message, inside: &mut Vec<(Place, Message)>) -> Read<Kind> {
        let mut source = Message::missing(message.at());
        let mut index = 0;
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => source.merge(field)?,
                3 => index = field.varint()? as i32,
                _ => {}
            }
        }
        inside.push((Place::Field("selection.source"), source));
        Ok(Kind::Selection(index))
    }

    fn data(&mut self, message: &Message) -> Read<Data> {
        let mut member = Member::none(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            if matches!(field.number, 1 | 3) {
                member.set(field)?;
            }
        }
        if member.number == 1 {
            let what = "data by its uri alone is no longer part of the language";
            return made(member.message.at(), Err(Error::new(Class::NotImplemented, what)));
        }
        let mut type_url = Name::from("");
        let mut value = Arc::default();
        for field in member.message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => type_url = self.name(field.span()?)?,
                2 => value = Arc::from(field.span()?.of(self.input)),
                _ => {}
            }
        }
        Ok(Data { type_url, value })
    }

    fn literal(&self, message: &Message) -> Read<Kind> {
        let mut value = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            if field.number == 1 {
                value.merge(field)?;
            }
        }
        Ok(Kind::Literal(array::read(self.input, &value)?))
    }

    pub fn build_block(&mut self, at: usize, parts: Parts) -> Read<()> {
        let declared = parts.typed.then(|| self.types.pop().expect("its type was read"));
        let block = made(at, self.build(parts.kind, declared.as_ref()))?;
        if let Some(declared) = declared
            && declared != *block.ty()
        {
            let error = Error::new(Class::Malformed, "the computation has not the type it says")
                .expected(declared)
                .found(block.ty());
            return Err(Fault { at, error });
        }
        self.blocks.push(block);
        Ok(())
    }

    /// An operation of the language has a type that fits its template.
    fn check_intrinsic(&mut self, uri: &str, ty: &Type) -> Result<()> {
        let Some(def) = intrinsics::by_uri(uri) else { return Ok(()) };
        if !self.checked.contains(&(def.uri, ty.clone())) {
            ty.check_concrete_instance_of(&def.ty)?;
            self.checked.insert((def.uri, ty.clone()));
        }
        Ok(())
    }

    fn build(&mut self, kind: Kind, declared: Option<&Type>) -> Result<BuildingBlock> {
        let ty = || declared.expect("its type doesn't follow from its parts").clone();
        let blocks = &mut self.blocks;
        let mut next = || blocks.pop().expect("the blocks in it were read");
        Ok(match kind {
            Kind::Reference(name) => BuildingBlock::reference(name, ty()),
            Kind::Intrinsic(uri) => {
                self.check_intrinsic(&uri, &ty())?;
                BuildingBlock::intrinsic(uri, ty())
            }
            Kind::Data(data) => BuildingBlock::data(data, ty()),
            Kind::Placement(placement) => BuildingBlock::placement(placement),
            Kind::Literal(array) => BuildingBlock::literal(array, ty())?,
            Kind::Compiled(payload) => {
                let name = default_name(&payload, &ty())?.into();
                BuildingBlock::compiled(Compiled { name, payload: Arc::new(payload) }, ty())
            }
            Kind::Selection(index) => {
                let index = usize::try_from(index).map_err(|_| {
                    Error::new(Class::Value, format!("a struct has no field {index}"))
                })?;
                BuildingBlock::select_index(next(), index)?
            }
            Kind::Struct(names) => {
                let values = self.blocks.split_off(self.blocks.len() - names.len());
                BuildingBlock::structure(names.into_iter().zip(values).collect(), None)?
            }
            Kind::Call { argument } => {
                let argument = argument.then(&mut next);
                BuildingBlock::call(next(), argument)?
            }
            Kind::Lambda(name) => {
                let of = declared.and_then(Type::as_function);
                let ty = of.and_then(|of| of.parameter.clone());
                let parameter = match (name, ty) {
                    (Some(name), Some(ty)) => Some((name, ty)),
                    (None, None) => None,
                    (name, _) => return Err(half_a_parameter(name, declared)),
                };
                BuildingBlock::lambda(parameter, next())
            }
            Kind::Block(names) => {
                let result = next();
                let values = self.blocks.split_off(self.blocks.len() - names.len());
                BuildingBlock::block(names.into_iter().zip(values).collect(), result)
            }
        })
    }
}

fn half_a_parameter(name: Option<Name>, declared: Option<&Type>) -> Error {
    let what = match name {
        Some(name) => format!("the lambda's parameter `{name}` has no type"),
        None => "the lambda's parameter has no name".to_owned(),
    };
    let error = Error::new(Class::Type, what);
    match declared {
        Some(declared) => error.found(declared),
        None => error,
    }
}
