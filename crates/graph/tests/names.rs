//! Names, against `torch.fx` (data/fx_names.txt) and TorchDynamo.

use stator_graph::names::{Namespace, placeholder_name, snake_case};

#[test]
fn names_match_fx() {
    let (names, snake) =
        include_str!("data/fx_names.txt").split_once("# snake case\n").expect("two parts");
    let mut namespace = Namespace::default();
    for line in names.lines().skip(1) {
        let (candidate, expected) = line.rsplit_once(' ').expect("two columns");
        assert_eq!(namespace.create(candidate), expected, "for {candidate}");
    }
    for line in snake.lines() {
        let (word, expected) = line.split_once(' ').expect("two columns");
        assert_eq!(snake_case(word), expected);
    }
    assert_eq!(namespace.create(""), "_unnamed");
}

#[test]
fn placeholders_match_dynamo() {
    let cases = [
        ("L['x']", "l_x_"),
        ("L['MyArg']", "l_my_arg_"),
        ("G['cfg']", "g_cfg_"),
        ("L['d']['k'][0]", "l_d_k_0_"),
        ("L['self']._modules['fc']._parameters['weight']", "l_self_modules_fc_parameters_weight_"),
    ];
    for (source, expected) in cases {
        assert_eq!(placeholder_name(source), expected);
    }
}
