//! Types as Python's `repr` shows them: the calls that make them.

use std::fmt::Write;

use super::{Shape, Type, TypeKind};
use crate::dtype::DType;

/// What is left to print of a type.
enum Step<'a> {
    Type(&'a Type),
    Text(&'a str),
}

impl Type {
    /// As Python's `repr`: `StructType([('a', TensorType(np.int32))])`.
    pub fn repr(&self) -> String {
        let mut text = String::new();
        // The last step is the next one.
        let mut steps = vec![Step::Type(self)];
        while let Some(step) = steps.pop() {
            let ty = match step {
                Step::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Step::Type(ty) => ty,
            };
            match ty.kind() {
                TypeKind::Tensor(tensor) => {
                    let scalar = match tensor.dtype {
                        DType::Str => "str_",
                        dtype => dtype.name(),
                    };
                    let shape = shape_repr(&tensor.shape);
                    let comma = if shape.is_empty() { "" } else { ", " };
                    write!(text, "TensorType(np.{scalar}{comma}{shape})").expect("a string");
                }
                TypeKind::Struct(structure) => {
                    text.push_str("StructType([");
                    if let Some(container) = structure.container() {
                        steps.extend([Step::Text(container.name()), Step::Text(" as ")]);
                    }
                    steps.push(Step::Text("])"));
                    for (at, field) in structure.fields().iter().enumerate().rev() {
                        match &field.name {
                            Some(name) => steps.extend([
                                Step::Text(")"),
                                Step::Type(&field.ty),
                                Step::Text("', "),
                                Step::Text(name),
                                Step::Text("('"),
                            ]),
                            None => steps.push(Step::Type(&field.ty)),
                        }
                        if at > 0 {
                            steps.push(Step::Text(", "));
                        }
                    }
                }
                TypeKind::Sequence(element) => {
                    text.push_str("SequenceType(");
                    steps.extend([Step::Text(")"), Step::Type(element)]);
                }
                TypeKind::Function(function) => {
                    text.push_str("FunctionType(");
                    let parameter = function.parameter.as_ref();
                    steps.extend([
                        Step::Text(")"),
                        Step::Type(&function.result),
                        Step::Text(", "),
                        parameter.map_or(Step::Text("None"), Step::Type),
                    ]);
                }
                TypeKind::Federated(federated) => {
                    text.push_str("FederatedType(");
                    steps.extend([
                        Step::Text(if federated.all_equal { "True)" } else { "False)" }),
                        Step::Text("'), "),
                        Step::Text(federated.placement.uri()),
                        Step::Text(", PlacementLiteral('"),
                        Step::Type(&federated.member),
                    ]);
                }
                TypeKind::Placement => text.push_str("PlacementType()"),
                TypeKind::Abstract(label) => {
                    write!(text, "AbstractType('{label}')").expect("a string");
                }
            }
        }
        text
    }
}

/// A tuple of sizes, or `None`; nothing for a scalar.
fn shape_repr(shape: &Shape) -> String {
    let Some(dims) = shape.dims() else { return "None".to_owned() };
    let size = |dim: &Option<u64>| dim.map_or_else(|| "None".to_owned(), |size| size.to_string());
    match dims {
        [] => String::new(),
        [dim] => format!("({},)", size(dim)),
        _ => format!("({})", dims.iter().map(size).collect::<Vec<_>>().join(", ")),
    }
}
