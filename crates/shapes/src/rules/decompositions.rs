//! Decompositions of matrices and what solves equations with them.

use super::call::{Attempt, Call};
use super::registry::Row;
use super::{Arg, Outcome, Sizes, refuse};
use crate::{Cmp, ExprId};

pub(super) const ROWS: &[Row] = &[
    Row { names: "linalg_lu", parameters: "A|input, *, pivot", rule: lu },
    Row {
        names: "linalg_lu_factor lu",
        parameters: "A|input|self, pivot",
        rule: |call| lu_factor(call, false),
    },
    Row {
        names: "linalg_lu_factor_ex",
        parameters: "A|input, *, pivot, check_errors",
        rule: |call| lu_factor(call, true),
    },
    Row {
        names: "lu_unpack",
        parameters: "A|LU_data, LU_pivots, unpack_data, unpack_pivots",
        rule: lu_unpack,
    },
    Row { names: "lu_solve", parameters: "B|b|self|input, LU|LU_data, LU_pivots", rule: lu_solve },
    Row { names: "linalg_lu_solve", parameters: "LU, pivots, B, *, left, adjoint", rule: lu_solve },
    Row { names: "linalg_qr", parameters: "A|input, mode", rule: qr },
    Row { names: "qr", parameters: "input|self, some", rule: |call| thin_or_full(call, qr_sizes) },
    Row {
        names: "linalg_svd",
        parameters: "A|input, full_matrices, *, driver",
        rule: |call| {
            let full = call.flag_or("full_matrices", true)?;
            svd_sizes(call, full, true)
        },
    },
    Row {
        names: "svd",
        parameters: "A|input|self, some",
        rule: |call| thin_or_full(call, |call, full| svd_sizes(call, full, false)),
    },
    Row { names: "linalg_svdvals", parameters: "A|input, *, driver", rule: singular_values },
    Row {
        names: "linalg_eig linalg_eigh",
        parameters: "A|input, UPLO",
        rule: |call| Ok(vec![eigenvalues(call)?, call.tensor("A")?]),
    },
    Row {
        names: "linalg_eigvals linalg_eigvalsh",
        parameters: "A|input, UPLO",
        rule: |call| Ok(vec![eigenvalues(call)?]),
    },
    Row {
        names: "linalg_cholesky_ex linalg_inv_ex",
        parameters: "A|input|self, *, upper, check_errors",
        rule: with_status,
    },
    Row { names: "linalg_pinv pinverse", parameters: "A|input|self, ...", rule: pseudo_inverse },
    Row { names: "linalg_solve", parameters: "A|input, B|other, *, left", rule: solve },
    Row {
        names: "linalg_solve_ex",
        parameters: "A|input, B|other, *, left, check_errors",
        rule: |call| {
            let result = solve_matrices(call)?;
            let batch = result[0][..result[0].len() - 2].iter().copied().collect();
            Ok(vec![result[0].clone(), batch])
        },
    },
    Row { names: "geqrf", parameters: "A|input|self", rule: |call| with_diagonal(call, false) },
    Row {
        names: "linalg_ldl_factor",
        parameters: "A|input|self, *, hermitian",
        rule: |call| with_diagonal(call, false),
    },
    Row {
        names: "linalg_ldl_factor_ex",
        parameters: "A|input|self, *, hermitian, check_errors",
        rule: |call| with_diagonal(call, true),
    },
    Row { names: "linalg_ldl_solve", parameters: "LU|LD, pivots, B, *, hermitian", rule: lu_solve },
    Row {
        names: "linalg_householder_product orgqr",
        parameters: "A|input|self, tau|input2",
        rule: householder_product,
    },
    Row {
        names: "ormqr",
        parameters: "input|self, tau|input2, other|input3, left, transpose",
        rule: reflected,
    },
    Row {
        names: "triangular_solve",
        parameters: "b|self|input, A, upper, transpose, unitriangular",
        rule: triangular_solve,
    },
    Row {
        names: "svd_lowrank",
        parameters: "A, q, niter, M",
        rule: |call| {
            let rank = call.expr_or("q", 6)?;
            low_rank(call, rank)
        },
    },
    Row {
        names: "pca_lowrank",
        parameters: "A, q, center, niter",
        rule: |call| {
            if call.get("q").is_some() {
                let rank = call.expr("q")?;
                return low_rank(call, rank);
            }
            let (_, rows, columns) = matrices(call, "A")?;
            let (rank, most) = (smaller(call, rows, columns), call.constant(6));
            let rank = smaller(call, most, rank);
            low_rank(call, rank)
        },
    },
    Row { names: "linalg_tensorinv", parameters: "A|input|self, ind", rule: tensor_inverse },
    Row {
        names: "linalg_tensorsolve",
        parameters: "A|input|self, B|other, dims",
        rule: tensor_solve,
    },
    Row {
        names: "cholesky_solve",
        parameters: "B|input|self, A|input2|L, upper",
        rule: solve_matrices,
    },
];

/// Batch, rows and columns of matrices.
fn matrices(call: &mut Call<'_>, name: &str) -> Attempt<(Sizes, ExprId, ExprId)> {
    let sizes = call.tensor(name)?;
    match sizes.split_last_chunk::<2>() {
        Some((batch, &[rows, columns])) => Ok((batch.iter().copied().collect(), rows, columns)),
        None => refuse("there is no such dimension"),
    }
}

fn with(batch: &Sizes, last: &[ExprId]) -> Sizes {
    batch.iter().chain(last).copied().collect()
}

/// The smaller of two; which one that is, is a guard.
fn smaller(call: &mut Call<'_>, a: ExprId, b: ExprId) -> ExprId {
    if call.holds(Cmp::Le, a, b) { a } else { b }
}

fn thin_or_full(
    call: &mut Call<'_>,
    sizes: impl FnOnce(&mut Call<'_>, bool) -> Outcome,
) -> Outcome {
    let some = call.flag_or("some", true)?;
    sizes(call, !some)
}

/// A matrix's batch, its rows and columns, and the smaller of them.
fn matrix(call: &mut Call<'_>) -> Attempt<(Sizes, ExprId, ExprId, ExprId)> {
    let mut batch = call.tensor("A")?;
    let (Some(columns), Some(rows)) = (batch.pop(), batch.pop()) else {
        return refuse("there is no such dimension");
    };
    let rank = call.ctx.min(&[rows, columns])?;
    Ok((batch, rows, columns, rank))
}

fn lu(call: &mut Call<'_>) -> Outcome {
    let (batch, rows, columns, rank) = matrix(call)?;
    let with = |last: [ExprId; 2]| batch.iter().copied().chain(last).collect::<Sizes>();
    let zero = call.constant(0);
    let permutation =
        if call.flag_or("pivot", true)? { with([rows, rows]) } else { Sizes::from_slice(&[zero]) };
    Ok(vec![permutation, with([rows, rank]), with([rank, columns])])
}

fn lu_unpack(call: &mut Call<'_>) -> Outcome {
    let (batch, rows, columns, rank) = matrix(call)?;
    let empty = Sizes::from_slice(&[call.constant(0)]);
    let data = call.flag_or("unpack_data", true)?;
    let pivots = call.flag_or("unpack_pivots", true)?;
    let with = |there: bool, last: [ExprId; 2]| -> Sizes {
        if there { batch.iter().copied().chain(last).collect() } else { empty.clone() }
    };
    Ok(vec![with(pivots, [rows, rows]), with(data, [rows, rank]), with(data, [rank, columns])])
}

/// The right side's, for each of the batches.
fn lu_solve(call: &mut Call<'_>) -> Outcome {
    let (mut right, mut matrix) = (call.tensor("B")?, call.tensor("LU")?);
    let (Some(columns), Some(rows)) = (right.pop(), right.pop()) else {
        return refuse("there is no such dimension");
    };
    let (Some(size), Some(_)) = (matrix.pop(), matrix.pop()) else {
        return refuse("there is no such dimension");
    };
    let left = call.named.iter().all(|(name, arg)| *name != "left" || *arg != Arg::Bool(false));
    call.unify(size, if left { rows } else { columns })?;
    let mut sizes = call.broadcast(&right, &matrix)?;
    sizes.extend([rows, columns]);
    Ok(vec![sizes])
}

fn lu_factor(call: &mut Call<'_>, info: bool) -> Outcome {
    let (batch, _, _, rank) = matrix(call)?;
    let pivots = batch.iter().copied().chain([rank]).collect();
    let mut results = vec![call.tensor("A")?, pivots];
    results.extend(info.then_some(batch));
    Ok(results)
}

fn qr(call: &mut Call<'_>) -> Outcome {
    match call.text("mode") {
        None | Some("reduced") => qr_sizes(call, false),
        Some("complete") => qr_sizes(call, true),
        Some(_) => refuse("a decomposition of another kind"),
    }
}

fn qr_sizes(call: &mut Call<'_>, full: bool) -> Outcome {
    let name = if call.get("A").is_some() { "A" } else { "input" };
    let (batch, rows, columns) = matrices(call, name)?;
    let inner = if full { rows } else { smaller(call, rows, columns) };
    Ok(vec![with(&batch, &[rows, inner]), with(&batch, &[inner, columns])])
}

fn svd_sizes(call: &mut Call<'_>, full: bool, adjoint: bool) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    let rank = smaller(call, rows, columns);
    let (left, right) = if full { (rows, columns) } else { (rank, rank) };
    let right = if adjoint { [right, columns] } else { [columns, right] };
    Ok(vec![with(&batch, &[rows, left]), with(&batch, &[rank]), with(&batch, &right)])
}

fn singular_values(call: &mut Call<'_>) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    let rank = smaller(call, rows, columns);
    Ok(vec![with(&batch, &[rank])])
}

fn eigenvalues(call: &mut Call<'_>) -> Attempt<Sizes> {
    let (batch, rows, columns) = matrices(call, "A")?;
    let side = call.unify(rows, columns)?;
    Ok(with(&batch, &[side]))
}

/// The result, and a number for each matrix.
fn with_status(call: &mut Call<'_>) -> Outcome {
    let (batch, ..) = matrices(call, "A")?;
    Ok(vec![call.tensor("A")?, batch])
}

/// The matrices, and as many numbers for each as its diagonal has; maybe one more for each.
fn with_diagonal(call: &mut Call<'_>, info: bool) -> Outcome {
    let (batch, _, _, rank) = matrix(call)?;
    let mut results = vec![call.tensor("A")?, with(&batch, &[rank])];
    results.extend(info.then_some(batch));
    Ok(results)
}

fn low_rank(call: &mut Call<'_>, rank: ExprId) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    for side in [rows, columns] {
        call.require(Cmp::Le, rank, side, "the rank is larger than the matrix")?;
    }
    Ok(vec![with(&batch, &[rows, rank]), with(&batch, &[rank]), with(&batch, &[columns, rank])])
}

/// Orthonormal columns: no more than there are rows, and at least one for each reflection.
fn householder_product(call: &mut Call<'_>) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    let tau = call.tensor("tau")?;
    let Some((&count, batches)) = tau.split_last() else {
        return refuse("there is no such dimension");
    };
    call.require(Cmp::Ge, rows, columns, "more columns than rows")?;
    call.require(Cmp::Le, count, columns, "more reflections than columns")?;
    let batch = call.unify_all(&batch, &batches.iter().copied().collect())?;
    Ok(vec![with(&batch, &[rows, columns])])
}

/// Matrices multiplied by reflections as long as one side of theirs.
fn reflected(call: &mut Call<'_>) -> Outcome {
    let (batch, length, columns) = matrices(call, "input")?;
    let (others, height, width) = matrices(call, "other")?;
    let tau = call.tensor("tau")?;
    let Some(&count) = tau.last() else { return refuse("there is no such dimension") };
    let side = if call.flag_or("left", true)? { height } else { width };
    call.unify(side, length)?;
    call.require(Cmp::Le, count, columns, "more reflections than columns")?;
    call.require(Cmp::Le, count, side, "more reflections than rows")?;
    let batch = call.unify_all(&others, &batch)?;
    Ok(vec![with(&batch, &[height, width])])
}

/// The solution, and the matrices as they were broadcast.
fn triangular_solve(call: &mut Call<'_>) -> Outcome {
    let (right, height, width) = matrices(call, "b")?;
    let (left, rows, columns) = matrices(call, "A")?;
    let side = call.unify(rows, columns)?;
    call.unify(height, side)?;
    let batch = call.broadcast(&right, &left)?;
    Ok(vec![with(&batch, &[height, width]), with(&batch, &[side, side])])
}

/// A tensor as a matrix of its first dimensions and the others, inverted.
fn tensor_inverse(call: &mut Call<'_>) -> Outcome {
    let sizes = call.tensor("A")?;
    let at = usize::try_from(call.int_or("ind", 2)?).unwrap_or(usize::MAX);
    let (Some(first), Some(last)) = (sizes.get(..at), sizes.get(at..)) else {
        return refuse("there is no such dimension");
    };
    let (rows, columns) = (call.numel(first)?, call.numel(last)?);
    call.unify(rows, columns)?;
    Ok(vec![last.iter().chain(first).copied().collect()])
}

/// What is left of the dimensions behind those of the right side.
fn tensor_solve(call: &mut Call<'_>) -> Outcome {
    if call.get("dims").is_some() {
        return refuse("dimensions that are moved");
    }
    let (sizes, right) = (call.tensor("A")?, call.tensor("B")?);
    let (Some(first), Some(last)) = (sizes.get(..right.len()), sizes.get(right.len()..)) else {
        return refuse("there is no such dimension");
    };
    for (&size, &other) in first.iter().zip(&right) {
        call.unify(size, other)?;
    }
    let (rows, columns) = (call.numel(first)?, call.numel(last)?);
    call.unify(rows, columns)?;
    Ok(vec![last.iter().copied().collect()])
}

fn pseudo_inverse(call: &mut Call<'_>) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    Ok(vec![with(&batch, &[columns, rows])])
}

/// Matrices on the right, or one vector.
fn solve(call: &mut Call<'_>) -> Outcome {
    solved(call, true)
}

fn solve_matrices(call: &mut Call<'_>) -> Outcome {
    solved(call, false)
}

fn solved(call: &mut Call<'_>, vectors: bool) -> Outcome {
    let (batch, rows, columns) = matrices(call, "A")?;
    call.unify(rows, columns)?;
    // Whether fewer dimensions are vectors or matrices to broadcast depends on their sizes.
    let right = call.tensor("B")?;
    if let (&[size], true) = (&right[..], vectors) {
        call.unify(size, rows)?;
        return Ok(vec![with(&batch, &[rows])]);
    }
    if right.len() != batch.len() + 2 {
        return refuse("vectors on the right");
    }
    let (right_batch, height, width) = matrices(call, "B")?;
    let left = call.flag_or("left", true).unwrap_or(true);
    call.unify(if left { height } else { width }, rows)?;
    let batch = call.broadcast(&batch, &right_batch)?;
    Ok(vec![with(&batch, &[height, width])])
}
