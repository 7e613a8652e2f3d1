//! `graph`: one row per node, as `torch.fx`'s `print_tabular` lays it out.

use crate::arg::Arg;
use crate::graph::{Graph, NodeKind, Target};
use crate::ids::NodeId;
use crate::names::Names;
use crate::print::{arg_text, tuple_text};

type Row = [String; 5];

/// The graph as a table: opcode, name, target, arguments by position, arguments by keyword.
pub fn graph_table(graph: &Graph) -> String {
    let names = Names::new(graph);
    let header = ["opcode", "name", "target", "args", "kwargs"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(graph.shown_nodes().map(|id| row(graph, &names, id)));
    let outputs = tuple_text(graph.outputs().iter().map(|&arg| arg_text(graph, &names, arg)));
    let outputs = format!("({outputs},)");
    rows.push(["output", names.output(), "output", &outputs, "{}"].map(str::to_owned));
    layout(&rows)
}

fn row(graph: &Graph, names: &Names, id: NodeId) -> Row {
    let text = |arg: &Arg| arg_text(graph, names, *arg);
    let (opcode, target, args, keywords) = match graph.node(id).kind {
        NodeKind::Placeholder { source } => {
            ("placeholder", graph.text(source).to_owned(), "()".to_owned(), "{}".to_owned())
        }
        NodeKind::GetItem { of, index } => {
            let args = format!("({}, {index})", names.get(of));
            ("call_function", "operator.getitem".to_owned(), args, "{}".to_owned())
        }
        NodeKind::Call { target, args, keywords } => {
            let args = graph.args(args);
            let (positional, named) = args.split_at(args.len() - keywords.len());
            let mut positional: Vec<String> = positional.iter().map(text).collect();
            let (opcode, target) = target_columns(graph, target, &mut positional);
            let keywords = graph.keywords(keywords).iter().zip(named);
            let keywords: Vec<String> = keywords
                .map(|(&name, arg)| format!("'{}': {}", graph.text(name), text(arg)))
                .collect();
            let keywords = format!("{{{}}}", keywords.join(", "));
            (opcode, target, tuple_text(positional.into_iter()), keywords)
        }
    };
    [opcode.to_owned(), names.get(id).to_owned(), target, args, keywords]
}

fn target_columns(
    graph: &Graph,
    target: Target,
    positional: &mut Vec<String>,
) -> (&'static str, String) {
    match target {
        Target::Function { name, .. } => ("call_function", graph.text(name).to_owned()),
        Target::Method { name, .. } => ("call_method", graph.text(name).to_owned()),
        Target::Operator(operator) => ("call_function", format!("operator.{}", operator.name())),
        Target::GetAttr { name } => {
            positional.push(format!("'{}'", graph.text(name)));
            ("call_function", "builtins.getattr".to_owned())
        }
        Target::Decide => ("call_function", "decide".to_owned()),
        Target::Catch => ("call_function", "catch".to_owned()),
    }
}

fn layout(rows: &[Row]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 5] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |cells: [&str; 5]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned() + "\n"
    };
    let cells = |row: &Row| line(row.each_ref().map(String::as_str));
    let dashes = widths.map(|width| "-".repeat(width));
    let (header, body) = rows.split_first().expect("the header");
    let mut out = cells(header);
    out += &line(dashes.each_ref().map(String::as_str));
    out.extend(body.iter().map(cells));
    out
}
