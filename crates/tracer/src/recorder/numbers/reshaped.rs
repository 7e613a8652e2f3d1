//! The strides of what `reshape` and its like give, with sizes and strides that are expressions.

use stator_shapes::Cmp;

use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::Sizes;
use crate::recorder::numbers::strides::are_equal;

impl State {
    /// The strides of what `reshape` gives: those of a view, if there is one, or of a contiguous copy. Which it is, is asked as
    /// PyTorch asks (`computeStride` of ATen); what isn't known becomes a guard.
    ///
    /// Dimensions of the argument that lie behind one another are one piece of memory. A view needs dimensions of the
    /// result that fill each piece, and no more.
    pub(super) fn reshaped(
        &mut self,
        before: &Sizes,
        strides: &Sizes,
        sizes: &Sizes,
    ) -> Option<Sizes> {
        let context = &mut self.symbols.as_mut()?.context;
        let (zero, one) = (context.constant(0), context.constant(1));
        if before.iter().any(|size| are_equal(context, *size, zero)) {
            return None;
        }
        let mut viewed: Sizes = sizes.iter().map(|_| one).collect();
        let mut open = sizes.len();
        let (mut piece, mut filled, mut step) = (one, one, *strides.last()?);
        for at in (0..before.len()).rev() {
            piece = context.mul(piece, before[at]).ok()?;
            if at > 0 {
                let next = context.mul(piece, step).ok()?;
                if are_equal(context, before[at - 1], one)
                    || are_equal(context, strides[at - 1], next)
                {
                    continue;
                }
            }
            while open > 0 {
                let has_room = context.compare(Cmp::Lt, filled, piece);
                if !context.evaluate(has_room).value() && !are_equal(context, sizes[open - 1], one)
                {
                    break;
                }
                open -= 1;
                viewed[open] = context.mul(filled, step).ok()?;
                filled = context.mul(filled, sizes[open]).ok()?;
            }
            if !are_equal(context, filled, piece) {
                return self.contiguous(sizes);
            }
            if at > 0 {
                (piece, filled, step) = (one, one, strides[at - 1]);
            }
        }
        if open == 0 { Some(viewed) } else { self.contiguous(sizes) }
    }
}
