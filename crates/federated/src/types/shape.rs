//! Shapes of tensors, as far as they are known.

/// The size of each dimension as far as it is known; or nothing known, not even their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(Option<Box<[Option<u64>]>>);

impl Shape {
    /// No dimensions.
    pub fn scalar() -> Self {
        Self(Some(Box::default()))
    }

    /// These dimensions, `None` where the size isn't known.
    pub fn new(dims: impl Into<Box<[Option<u64>]>>) -> Self {
        Self(Some(dims.into()))
    }

    /// An unknown number of dimensions.
    pub fn unknown_rank() -> Self {
        Self(None)
    }

    /// The dimensions, if their number is known.
    pub fn dims(&self) -> Option<&[Option<u64>]> {
        self.0.as_deref()
    }

    /// Whether it has no dimensions.
    pub fn is_scalar(&self) -> bool {
        self.dims().is_some_and(<[_]>::is_empty)
    }

    /// Whether every size is known.
    pub fn is_fully_defined(&self) -> bool {
        self.dims().is_some_and(|dims| dims.iter().all(Option::is_some))
    }

    /// The number of elements, if every size is known and the product is a `u64`.
    pub fn elements(&self) -> Option<u64> {
        self.dims()?.iter().try_fold(1u64, |product, dim| product.checked_mul((*dim)?))
    }

    /// Whether some array has both shapes.
    pub fn is_compatible_with(&self, other: &Self) -> bool {
        let (Some(ours), Some(theirs)) = (self.dims(), other.dims()) else {
            return true;
        };
        let agree = |(a, b): (&Option<u64>, &Option<u64>)| a.is_none() || b.is_none() || a == b;
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(agree)
    }

    /// Whether every array of shape `source` has this shape.
    pub fn is_assignable_from(&self, source: &Self) -> bool {
        let Some(ours) = self.dims() else { return true };
        let Some(theirs) = source.dims() else { return false };
        let accepts = |(a, b): (&Option<u64>, &Option<u64>)| a.is_none() || a == b;
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(accepts)
    }
}
