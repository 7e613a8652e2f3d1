//! `(x -> f(x))(y)` as `(let x=y in f(x))`.

use crate::Result;
use crate::ast::walk::{Transformed, transform_postorder};
use crate::ast::{BlockKind, BuildingBlock};

/// Makes each call of a lambda names for its argument: `(x -> f(x))(y)` becomes
/// `(let x=y in f(x))`, and `( -> f)()` becomes `f`.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn replace_called_lambda_with_block(root: &BuildingBlock) -> Result<Transformed> {
    transform_postorder(root, |block| {
        let BlockKind::Call(call) = block.kind() else { return Ok((block.clone(), false)) };
        let Some(lambda) = call.function.as_lambda() else { return Ok((block.clone(), false)) };
        let result = lambda.result.clone();
        Ok(match (&lambda.parameter, &call.argument) {
            // The argument is outside: a name in it is never the parameter.
            (Some((name, _)), Some(argument)) => {
                (BuildingBlock::block(vec![(name.clone(), argument.clone())], result), true)
            }
            _ => (result, true),
        })
    })
}
