//! A program as text: a line for each node.

use std::fmt::Write;

use super::{METHOD, Program};
use crate::arg::{Arg, Constant};
use crate::graph::{Graph, NodeKind, Target};
use crate::ids::NodeId;
use crate::print::{repr_float, repr_str, tuple_text};

impl Program {
    /// The text form, which [`Program::parse`] reads.
    pub fn print(&self) -> String {
        let mut out = String::from(super::parse::HEADER);
        let mut line = |text: std::fmt::Arguments<'_>| {
            // Writing to a string doesn't fail.
            let _ = writeln!(out, "{text}");
        };
        line(format_args!(""));
        line(format_args!("default_dtype {}", self.default_dtype.name()));
        for (index, input) in self.inputs.iter().enumerate() {
            line(format_args!("{} = input {input}", NodeId::new(index)));
        }
        for (index, constant) in self.constants.iter().enumerate() {
            let id = NodeId::new(self.inputs.len() + index);
            let gradient = if constant.requires_grad { " requires_grad" } else { "" };
            line(format_args!("{id} = constant {}{gradient}", constant.tensor));
        }
        for requirement in &self.requirements {
            line(format_args!("require {}", requirement.text()));
        }
        for (id, node) in self.graph.nodes() {
            match node.kind {
                NodeKind::Placeholder { .. } => {}
                NodeKind::GetItem { of, index } => line(format_args!("{id} = item({of}, {index})")),
                NodeKind::Call { target, args, keywords } => {
                    let args = self.graph.args(args);
                    let (positional, named) = args.split_at(args.len() - keywords.len());
                    let mut texts: Vec<String> =
                        positional.iter().map(|arg| arg_text(&self.graph, *arg)).collect();
                    let target = match target {
                        Target::GetAttr { name } => {
                            texts.push(repr_str(self.graph.text(name)));
                            "attribute".to_string()
                        }
                        other => target_text(&self.graph, other),
                    };
                    for (&name, &arg) in self.graph.keywords(keywords).iter().zip(named) {
                        let arg = arg_text(&self.graph, arg);
                        texts.push(format!("{}={arg}", self.graph.text(name)));
                    }
                    line(format_args!("{id} = {target}({})", texts.join(", ")));
                }
            }
        }
        line(format_args!("takes {}", self.takes));
        line(format_args!("gives {}", self.gives));
        let outputs = self.graph.outputs().iter().zip(&self.outputs);
        let outputs: Vec<String> =
            outputs.map(|(arg, ty)| format!("{}: {ty}", arg_text(&self.graph, *arg))).collect();
        line(format_args!("return {}", outputs.join(", ")));
        out
    }
}

fn target_text(graph: &Graph, target: Target) -> String {
    match target {
        Target::Function { name, .. } => {
            let name = graph.text(name);
            match name.strip_prefix(METHOD) {
                Some(method) if method.starts_with('.') && method.matches('.').count() == 1 => {
                    method.to_string()
                }
                _ => name.to_string(),
            }
        }
        Target::Method { name, .. } => format!(".{}", graph.text(name)),
        Target::Operator(operator) => format!("operator.{}", operator.name()),
        Target::GetAttr { .. } => unreachable!("printed by itself"),
        Target::Decide | Target::Catch => unreachable!("a tensor program decides nothing"),
    }
}

fn arg_text(graph: &Graph, arg: Arg) -> String {
    let texts = |items| graph.args(items).iter().map(|item| arg_text(graph, *item));
    match arg {
        Arg::Node(node) => node.to_string(),
        Arg::Constant(Constant::Ellipsis) => "...".to_string(),
        Arg::Constant(Constant::Complex(real, imaginary)) => {
            format!("complex({}, {})", repr_float(real), repr_float(imaginary))
        }
        Arg::Constant(constant) => crate::print::constant_text(graph, constant),
        Arg::Object(object) => graph.object_text(object).to_string(),
        Arg::List(items) => format!("[{}]", texts(items).collect::<Vec<_>>().join(", ")),
        Arg::Tuple(items) => tuple_text(texts(items)),
        Arg::Slice(items) => format!("slice({})", texts(items).collect::<Vec<_>>().join(", ")),
        Arg::Dict(items) => {
            let parts: Vec<String> = texts(items).collect();
            let pairs: Vec<String> = parts.chunks(2).map(|pair| pair.join(": ")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
