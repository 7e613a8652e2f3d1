//! The notation of types, in one line and over several.

use std::fmt;

use super::{Shape, Type, TypeKind};

/// What is left to print of a type.
enum Step<'a> {
    Type(&'a Type),
    Text(&'a str),
    /// A line break, then two blanks for each struct that is open.
    Line(usize),
}

impl Type {
    /// The notation over several lines: each field of a struct on its own, indented by two.
    pub fn formatted(&self) -> String {
        let mut text = String::new();
        self.print(&mut text, true).expect("writing to a string");
        text
    }

    fn print(&self, f: &mut impl fmt::Write, lines: bool) -> fmt::Result {
        // The last step is the next one. The depth of structs is that of the type itself.
        let mut steps = vec![(0, Step::Type(self))];
        while let Some((depth, step)) = steps.pop() {
            let ty = match step {
                Step::Text(text) => {
                    f.write_str(text)?;
                    continue;
                }
                Step::Line(depth) => {
                    write!(f, "\n{:1$}", "", 2 * depth)?;
                    continue;
                }
                Step::Type(ty) => ty,
            };
            match ty.kind() {
                TypeKind::Tensor(tensor) => match tensor.shape.dims() {
                    Some(_) => write!(f, "{}{}", tensor.dtype, tensor.shape)?,
                    None => write!(f, "'{}'{}", tensor.dtype, tensor.shape)?,
                },
                TypeKind::Placement => f.write_str("placement")?,
                TypeKind::Abstract(label) => f.write_str(label)?,
                TypeKind::Struct(structure) => {
                    f.write_str("<")?;
                    steps.push((depth, Step::Text(">")));
                    let spread = lines && !structure.is_empty();
                    if spread {
                        steps.push((depth, Step::Line(depth)));
                    }
                    for (at, field) in structure.fields().iter().enumerate().rev() {
                        steps.push((depth + 1, Step::Type(&field.ty)));
                        if let Some(name) = &field.name {
                            steps.push((depth, Step::Text("=")));
                            steps.push((depth, Step::Text(name)));
                        }
                        if spread {
                            steps.push((depth, Step::Line(depth + 1)));
                        }
                        if at > 0 {
                            steps.push((depth, Step::Text(",")));
                        }
                    }
                }
                TypeKind::Sequence(element) => {
                    steps.push((depth, Step::Text("*")));
                    steps.push((depth, Step::Type(element)));
                }
                TypeKind::Function(function) => {
                    steps.push((depth, Step::Text(")")));
                    steps.push((depth, Step::Type(&function.result)));
                    steps.push((depth, Step::Text(" -> ")));
                    steps.extend(function.parameter.as_ref().map(|ty| (depth, Step::Type(ty))));
                    steps.push((depth, Step::Text("(")));
                }
                TypeKind::Federated(federated) => {
                    steps.push((depth, Step::Text(federated.placement.name())));
                    steps.push((depth, Step::Text(if federated.all_equal { "@" } else { "}@" })));
                    steps.push((depth, Step::Type(&federated.member)));
                    if !federated.all_equal {
                        steps.push((depth, Step::Text("{")));
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Type {
    /// The notation in one line: `<a=int32,bool>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, false)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, false)
    }
}

impl fmt::Display for Shape {
    /// `[2,?]`; nothing for a scalar; `(shape=None)` where not even the rank is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = self.dims() else {
            return f.write_str("(shape=None)");
        };
        for (at, dim) in dims.iter().enumerate() {
            f.write_str(if at == 0 { "[" } else { "," })?;
            match dim {
                Some(size) => write!(f, "{size}")?,
                None => f.write_str("?")?,
            }
        }
        f.write_str(if dims.is_empty() { "" } else { "]" })
    }
}
