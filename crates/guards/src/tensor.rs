//! The facts of `check_tensor`.

use crate::ObjectId;
use serde::{Deserialize, Serialize};

/// Metadata of a tensor, as PyTorch's C ABI numbers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorGuard {
    /// The exact Python type (`torch.Tensor`, `Parameter`, a subclass).
    pub python_type: ObjectId,
    /// `c10::ScalarType`.
    pub dtype: i32,
    /// `c10::DeviceType`.
    pub device_type: i32,
    /// Device index; -1 where the device has none (cpu).
    pub device_index: i32,
    /// `c10::Layout`.
    pub layout: i32,
    /// `requires_grad`.
    pub requires_grad: bool,
    /// Sizes; `None` where any size is accepted.
    pub sizes: Box<[Option<i64>]>,
    /// Strides; `None` where any stride is accepted. Empty for layouts without strides.
    pub strides: Box<[Option<i64>]>,
    /// The dispatch key set's bits.
    pub key_set: u64,
}

impl TensorGuard {
    /// The dtype as Python spells it.
    #[must_use]
    pub fn dtype_name(&self) -> String {
        dtype_name(self.dtype)
    }
}

/// Names by `c10::ScalarType`; the order is part of PyTorch's serialisation format.
#[rustfmt::skip]
const DTYPES: [&str; 46] = [
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2",
    "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2",
    "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64", "uint1",
    "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "int1", "int2", "int3", "int4", "int5",
    "int6", "int7", "float8_e8m0fnu", "float4_e2m1fn_x2",
];

pub(crate) fn dtype_name(dtype: i32) -> String {
    let name = usize::try_from(dtype).ok().and_then(|index| DTYPES.get(index));
    name.map_or_else(|| format!("torch.dtype({dtype})"), |name| format!("torch.{name}"))
}
