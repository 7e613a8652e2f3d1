//! Losses: a number, or one for each element.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Outcome, Sizes, refuse};

const PAIR: &str = "input|self, target, ...";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy \
            binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss kl_div",
        parameters: PAIR,
        rule: |call| loss(call, elementwise),
    },
    Row {
        names: "cross_entropy cross_entropy_loss nll_loss nll_loss_nd",
        parameters: PAIR,
        rule: |call| loss(call, classified),
    },
    Row {
        names: "margin_ranking_loss hinge_embedding_loss cosine_embedding_loss gaussian_nll_loss \
            triplet_margin_loss multi_margin_loss multilabel_margin_loss \
            multilabel_soft_margin_loss",
        parameters: "input, ...",
        rule: |call| loss(call, |_| refuse("losses of each element")),
    },
    Row { names: "ctc_loss", parameters: "log_probs, ...", rule: of_sequences },
];

/// A loss of each sequence: they are the second dimension, if there are several.
fn of_sequences(call: &mut Call<'_>) -> Outcome {
    let named = call.named.iter().find(|(name, _)| *name == "reduction").map(|(_, arg)| arg);
    match named.or_else(|| call.positional.get(5)) {
        None => return Ok(vec![Sizes::new()]),
        Some(super::Arg::Text(text)) if matches!(text.as_str(), "mean" | "sum") => {
            return Ok(vec![Sizes::new()]);
        }
        Some(super::Arg::Text(text)) if text.as_str() == "none" => {}
        Some(_) => return refuse("a reduction of another kind"),
    }
    let input = call.tensor("log_probs")?;
    Ok(vec![input.get(1).filter(|_| input.len() == 3).into_iter().copied().collect()])
}

/// What becomes of the losses of the elements. Functions say it by name, ATen by number.
fn loss(call: &mut Call<'_>, unreduced: fn(&mut Call<'_>) -> Attempt<Sizes>) -> Outcome {
    let named = call.named.iter().find(|(name, _)| *name == "reduction").map(|(_, arg)| arg);
    let old_style = |name: &str| matches!(name, "reduce" | "size_average");
    if call.named.iter().any(|(name, arg)| old_style(name) && *arg != super::Arg::None) {
        return refuse("a reduction of another kind");
    }
    // ATen's functions take it by place: which one depends on the loss.
    let reduced = match named {
        Some(super::Arg::Text(text)) => match text.as_str() {
            "none" => false,
            "mean" | "sum" | "batchmean" => true,
            _ => return refuse("a reduction of another kind"),
        },
        Some(_) => return refuse("a reduction of another kind"),
        None if call.positional.len() <= 3 => true,
        None => return refuse("a reduction that isn't named"),
    };
    if reduced {
        // What is required of the arguments is required of them in any case, if it is known. Where
        // it isn't, the operation itself fails.
        let _ = unreduced(call);
        return Ok(vec![Sizes::new()]);
    }
    Ok(vec![unreduced(call)?])
}

fn elementwise(call: &mut Call<'_>) -> Attempt<Sizes> {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    call.broadcast(&input, &target)
}

/// Classes stand in the second dimension, or in the only one.
fn classified(call: &mut Call<'_>) -> Attempt<Sizes> {
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    let mut sizes = input.clone();
    if !sizes.is_empty() {
        sizes.remove(usize::from(sizes.len() > 1));
    }
    if target.len() == input.len() {
        // Probabilities for each class.
        call.unify_all(&input, &target)?;
        return Ok(sizes);
    }
    call.unify_all(&sizes, &target)
}
