//! `graph_code`: the graph as the Python function it amounts to.

use std::fmt::Write;

use crate::arg::{Arg, Constant};
use crate::graph::{Graph, KeywordList, NodeKind, Target};
use crate::ids::NodeId;
use crate::names::{Names, is_argument_name};
use crate::operator::Operator;
use crate::print::{arg_text, repr_str, tuple_text};
use crate::stack::{Locate, shown_locations};
use crate::tensor::Value;

/// The graph as a Python function, with a comment wherever the place in the program changes.
pub fn graph_code(graph: &Graph, locate: &dyn Locate) -> String {
    let printer = Printer { graph, names: &Names::new(graph), uses: &graph.use_counts() };
    let mut out = printer.signature();
    let mut last_comment = String::new();
    for id in graph.shown_nodes().skip(graph.placeholders().len()) {
        let comment = place_comment(graph, id, locate).unwrap_or_default();
        if !comment.is_empty() && comment != last_comment {
            writeln!(out, "    {comment}").expect("writing to a string");
            last_comment = comment;
        }
        writeln!(out, "    {}", printer.statement(id)).expect("writing to a string");
    }
    let outputs = tuple_text(graph.outputs().iter().map(|&output| printer.arg(output)));
    writeln!(out, "    return {outputs}").expect("writing to a string");
    out
}

fn place_comment(graph: &Graph, id: NodeId, locate: &dyn Locate) -> Option<String> {
    let places = shown_locations(graph.stacks(), graph.node(id).stack?, locate);
    let place = places.first()?;
    let mut comment = format!("# File: {}:{}", place.file, place.line);
    if !place.code.is_empty() {
        write!(comment, ", code: {}", place.code).expect("writing to a string");
    }
    Some(comment)
}

struct Printer<'g> {
    graph: &'g Graph,
    names: &'g Names,
    uses: &'g [u32],
}

impl Printer<'_> {
    fn signature(&self) -> String {
        let parameter = |&id: &NodeId| {
            let kind = match self.graph.node(id).value {
                Value::Integer => "torch.SymInt",
                Value::Float => "torch.SymFloat",
                _ => "torch.Tensor",
            };
            format!("{}: {kind}", self.names.get(id))
        };
        let parameters: Vec<String> = self.graph.placeholders().iter().map(parameter).collect();
        format!("def forward({}):\n", parameters.join(", "))
    }

    fn statement(&self, id: NodeId) -> String {
        let name = self.names.get(id);
        match self.graph.node(id).kind {
            NodeKind::Placeholder { .. } => unreachable!("placeholders are parameters"),
            NodeKind::GetItem { of, index } => format!("{name} = {}[{index}]", self.names.get(of)),
            NodeKind::Call { target: Target::Operator(operator), args, .. } => {
                self.operator(id, operator, self.graph.args(args))
            }
            NodeKind::Call { target, args, keywords } => {
                format!("{name} = {}", self.call(target, self.graph.args(args), keywords))
            }
        }
    }

    /// An operator; one that works in place is a statement of its own, and its result, where it is
    /// used, is the first operand under a new name.
    fn operator(&self, id: NodeId, operator: Operator, operands: &[Arg]) -> String {
        let name = self.names.get(id);
        let mut operands: Vec<String> = operands.iter().map(|&operand| self.arg(operand)).collect();
        if operator == Operator::Pow && operands[0].starts_with('-') {
            operands[0] = format!("({})", operands[0]);
        }
        let expression = fill(operator.template(), &operands);
        if !operator.is_in_place() {
            format!("{name} = {expression}")
        } else if self.uses[id.index()] > 0 {
            format!("{expression};  {name} = {}", operands[0])
        } else {
            expression
        }
    }

    fn call(&self, target: Target, args: &[Arg], keywords: KeywordList) -> String {
        match target {
            Target::Operator(_) => unreachable!("operators are printed by their template"),
            Target::GetAttr { name } => {
                format!("{}.{}", self.receiver(args[0]), self.graph.text(name))
            }
            Target::Method { name, .. } => {
                let (receiver, rest) = (self.receiver(args[0]), &args[1..]);
                format!("{receiver}.{}({})", self.graph.text(name), self.args(rest, keywords))
            }
            Target::Function { name, .. } => {
                format!("{}({})", self.graph.text(name), self.args(args, keywords))
            }
            Target::Decide => format!("decide({})", self.args(args, keywords)),
            Target::Catch => format!("catch({})", self.args(args, keywords)),
        }
    }

    fn args(&self, args: &[Arg], keywords: KeywordList) -> String {
        let (positional, named) = args.split_at(args.len() - keywords.len());
        let positional = positional.iter().map(|&arg| self.arg(arg));
        let names = self.graph.keywords(keywords).iter();
        let named = names.zip(named).map(|(&name, &arg)| match self.graph.text(name) {
            name if is_argument_name(name) => format!("{name} = {}", self.arg(arg)),
            name => format!("**{{{}: {}}}", repr_str(name), self.arg(arg)),
        });
        positional.chain(named).collect::<Vec<_>>().join(", ")
    }

    fn receiver(&self, arg: Arg) -> String {
        match arg {
            Arg::Constant(Constant::Int(_) | Constant::BigInt(_) | Constant::Float(_)) => {
                format!("({})", self.arg(arg))
            }
            _ => self.arg(arg),
        }
    }

    fn arg(&self, arg: Arg) -> String {
        arg_text(self.graph, self.names, arg)
    }
}

/// Puts the operands into the places of a template.
fn fill(template: &str, operands: &[String]) -> String {
    let mut out = String::with_capacity(template.len() + 16);
    let mut operands = operands.iter();
    let mut pieces = template.split("{}");
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.push_str(operands.next().map_or("", String::as_str));
        out.push_str(piece);
    }
    out
}
