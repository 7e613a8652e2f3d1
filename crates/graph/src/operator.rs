//! Python's operators as functions of the `operator` module: one table row each.
//!
//! Names and templates are those of `torch.fx`'s code generator (`magic_methods` and
//! `inplace_methods` in `torch/fx/graph.py`).

use serde::{Deserialize, Serialize};

macro_rules! operators {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:literal $in_place:literal $template:literal)*) => {
        /// An operator that Python spells with a sign.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Operator {
            $($(#[$doc])* #[doc = concat!("`", $template, "`")] $variant,)*
        }

        impl Operator {
            /// All operators, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The function's name in Python's `operator` module.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The number of operands.
            pub const fn arity(self) -> usize {
                match self { $(Self::$variant => $arity),* }
            }

            /// Whether the operator is a statement that writes to its first operand.
            pub const fn is_in_place(self) -> bool {
                match self { $(Self::$variant => $in_place),* }
            }

            /// The printed form, with `{}` for each operand.
            pub const fn template(self) -> &'static str {
                match self { $(Self::$variant => $template),* }
            }

            /// The operator with this name in Python's `operator` module.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

operators! {
    Add "add" 2 false "{} + {}"
    Sub "sub" 2 false "{} - {}"
    Mul "mul" 2 false "{} * {}"
    FloorDiv "floordiv" 2 false "{} // {}"
    TrueDiv "truediv" 2 false "{} / {}"
    Mod "mod" 2 false "{} % {}"
    Pow "pow" 2 false "{} ** {}"
    LShift "lshift" 2 false "{} << {}"
    RShift "rshift" 2 false "{} >> {}"
    And "and_" 2 false "{} & {}"
    Or "or_" 2 false "{} | {}"
    Xor "xor" 2 false "{} ^ {}"
    MatMul "matmul" 2 false "{} @ {}"
    GetItem "getitem" 2 false "{}[{}]"
    Eq "eq" 2 false "{} == {}"
    Ne "ne" 2 false "{} != {}"
    Lt "lt" 2 false "{} < {}"
    Gt "gt" 2 false "{} > {}"
    Le "le" 2 false "{} <= {}"
    Ge "ge" 2 false "{} >= {}"
    Pos "pos" 1 false "+{}"
    Neg "neg" 1 false "-{}"
    Invert "invert" 1 false "~{}"
    IAdd "iadd" 2 true "{} += {}"
    ISub "isub" 2 true "{} -= {}"
    IMul "imul" 2 true "{} *= {}"
    IFloorDiv "ifloordiv" 2 true "{} //= {}"
    ITrueDiv "itruediv" 2 true "{} /= {}"
    IMod "imod" 2 true "{} %= {}"
    IPow "ipow" 2 true "{} **= {}"
    ILShift "ilshift" 2 true "{} <<= {}"
    IRShift "irshift" 2 true "{} >>= {}"
    IAnd "iand" 2 true "{} &= {}"
    IOr "ior" 2 true "{} |= {}"
    IXor "ixor" 2 true "{} ^= {}"
    IMatMul "imatmul" 2 true "{} @= {}"
    SetItem "setitem" 3 true "{}[{}] = {}"
    DelItem "delitem" 2 true "del {}[{}]"
}

#[cfg(test)]
mod tests {
    use super::Operator;

    #[test]
    fn rows_agree_with_themselves() {
        for &operator in Operator::ALL {
            assert_eq!(Operator::from_name(operator.name()), Some(operator));
            assert_eq!(operator.template().matches("{}").count(), operator.arity());
        }
        assert_eq!(Operator::from_name("nonsense"), None);
    }
}
