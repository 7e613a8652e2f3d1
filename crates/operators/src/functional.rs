//! Functions of `torch.nn.functional` that are written in Python and only call one operator, unless an argument is of a class of
//! the program's: which one, and what it is given.

use crate::direct::Default;

/// What an argument of the operator is.
#[derive(Clone, Copy, Debug)]
pub enum Take {
    /// The function's argument of this number.
    Argument(usize),
    /// As [`Take::Argument`], if a number from 0 up is given; -1 for `None`.
    Place(usize),
    /// Whether.
    Truth(bool),
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, and what is taken where nothing is given.
    pub parameters: &'static [(&'static str, Default)],
    /// Those that have to be what is taken where nothing is given.
    pub left: &'static [usize],
    /// The operator.
    pub operator: &'static str,
    /// The module whose function of the operator's name it calls; empty: it calls a method.
    pub owner: &'static str,
    /// What it is given, in order.
    pub takes: &'static [Take],
}

/// Functions of tensors.
pub const TORCH: &str = "torch";
/// Functions of tensors that `torch.nn.functional` alone calls.
pub const NN: &str = "torch._C._nn";
const INPUT: (&str, Default) = ("input", Default::Required);
const IN_PLACE: (&str, Default) = ("inplace", Default::Bool(false));
const FALSE: Default = Default::Bool(false);
const NOTHING: Default = Default::Nothing;

/// A function of one tensor.
const fn of_one(owner: &'static str, name: &'static str) -> Function {
    let parameters = &[INPUT, IN_PLACE];
    Function { name, parameters, left: &[1], operator: name, owner, takes: &[Take::Argument(0)] }
}

const fn soft(name: &'static str) -> Function {
    let parameters =
        &[INPUT, ("dim", Default::Required), ("_stacklevel", Default::Int(3)), ("dtype", NOTHING)];
    let takes = &[Take::Argument(0), Take::Argument(1)];
    Function { name, parameters, left: &[2, 3], operator: name, owner: "", takes }
}

const FUNCTIONS: &[Function] = &[
    Function {
        name: "embedding",
        parameters: &[
            INPUT,
            ("weight", Default::Required),
            ("padding_idx", NOTHING),
            ("max_norm", NOTHING),
            ("norm_type", Default::Float(2.0)),
            ("scale_grad_by_freq", FALSE),
            ("sparse", FALSE),
        ],
        left: &[3],
        operator: "embedding",
        owner: TORCH,
        takes: &[
            Take::Argument(1),
            Take::Argument(0),
            Take::Place(2),
            Take::Argument(5),
            Take::Argument(6),
        ],
    },
    Function {
        name: "layer_norm",
        parameters: &[
            INPUT,
            ("normalized_shape", Default::Required),
            ("weight", NOTHING),
            ("bias", NOTHING),
            ("eps", Default::Float(1e-5)),
        ],
        left: &[],
        operator: "layer_norm",
        owner: TORCH,
        // The last one is whether cuDNN may be used, which nobody looks at any more.
        takes: &[
            Take::Argument(0),
            Take::Argument(1),
            Take::Argument(2),
            Take::Argument(3),
            Take::Argument(4),
            Take::Truth(true),
        ],
    },
    Function {
        name: "rms_norm",
        parameters: &[
            INPUT,
            ("normalized_shape", Default::Required),
            ("weight", NOTHING),
            ("eps", NOTHING),
        ],
        left: &[],
        operator: "rms_norm",
        owner: TORCH,
        takes: &[Take::Argument(0), Take::Argument(1), Take::Argument(2), Take::Argument(3)],
    },
    of_one(NN, "hardswish"),
    soft("log_softmax"),
    of_one(NN, "mish"),
    of_one(TORCH, "relu"),
    of_one(NN, "relu6"),
    of_one(TORCH, "selu"),
    of_one(NN, "silu"),
    soft("softmax"),
];

/// The function of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}
