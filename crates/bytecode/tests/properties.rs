//! Random bytes never panic; random valid parts come back from their encoding.

use proptest::collection::vec;
use proptest::prelude::*;
use stator_bytecode::{
    Code, InstrId, Instruction, Location, Opcode, Parts, Version, assemble, decode,
    exception_table as exceptions, find_handler, line_of, line_table as lines, max_depth,
};

fn any_version() -> impl Strategy<Value = Version> {
    proptest::sample::select(Version::ALL.to_vec())
}

/// Code units that are often valid: real opcode numbers with their caches, prefixes, small arguments.
fn likely_code(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let rows: Vec<(u8, u8)> = version.table().rows().map(|r| (r.number, r.caches)).collect();
    let unit = (proptest::sample::select(rows), prop_oneof![0..4_u8, any::<u8>()]);
    vec(unit, 0..60).prop_map(|units| {
        let mut code = Vec::new();
        for ((number, caches), arg) in units {
            if number == 0 {
                continue;
            }
            code.extend([number, arg]);
            code.resize(code.len() + usize::from(caches) * 2, 0);
        }
        code
    })
}

/// A list that can be assembled: each jump leads in its opcode's direction.
fn valid_instructions(version: Version) -> impl Strategy<Value = Vec<Instruction>> {
    let rows: Vec<_> = version
        .table()
        .rows()
        .filter(|row| !matches!(row.opcode, Opcode::CACHE | Opcode::EXTENDED_ARG))
        .copied()
        .collect();
    let arg = prop_oneof![0..256_u32, 0..70_000_u32, any::<u32>()];
    let prefixes = prop_oneof![9 => Just(0_u8), 1 => 0..=3_u8];
    let one = (proptest::sample::select(rows), arg, any::<prop::sample::Index>(), prefixes);
    vec(one, 1..300).prop_map(move |all| {
        let count = all.len();
        let make = |(at, (row, arg, to, prefixes)): (usize, (_, u32, prop::sample::Index, u8))| {
            let row: stator_bytecode::OpInfo = row;
            let target = match row.arg {
                stator_bytecode::Arg::JumpForward if at + 1 == count => None,
                stator_bytecode::Arg::JumpForward => Some(at + 1 + to.index(count - at - 1)),
                _ => Some(to.index(at + 1)),
            };
            let made = match target {
                Some(target) if row.has_jump() => {
                    Instruction::jump(version, row.opcode, InstrId(target as u32))
                }
                _ => Instruction::new(version, row.opcode, arg),
            };
            made.map(|instruction| Instruction { prefixes, ..instruction })
        };
        let nop = Instruction::new(version, Opcode::NOP, 0);
        all.into_iter().enumerate().filter_map(|one| make(one).or(nop)).collect()
    })
}

fn any_location() -> impl Strategy<Value = Option<Location>> {
    let columns = prop_oneof![
        (0..100_u32, 0..20_u32).prop_map(|(c, n)| Some((c, c + n))),
        (0..5000_u32, 0..5000_u32).prop_map(Some),
        Just(None),
    ];
    let lines = (0..400_i32, prop_oneof![3 => Just(0), 1 => 0..90_i32]);
    let location = (lines, columns).prop_map(|((line, more), columns)| Location {
        line,
        end_line: line + more,
        column: columns.map(|c| c.0),
        end_column: columns.map(|c| c.1),
    });
    proptest::option::weighted(0.9, location)
}

/// Entries sorted by start, without overlaps.
fn valid_entries() -> impl Strategy<Value = Vec<exceptions::Entry>> {
    let one = (0..90_u32, 1..5000_u32, 0..1_000_000_u32, 0..200_u32, any::<bool>());
    vec(one, 0..40).prop_map(|all| {
        let mut unit = 0;
        let place = |(gap, length, target, depth, lasti)| {
            let start = unit + gap;
            unit = start + length;
            exceptions::Entry { start, end: unit, target, depth, lasti }
        };
        all.into_iter().map(place).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(
        version in any_version(),
        code in vec(any::<u8>(), 0..80),
        table in vec(any::<u8>(), 0..80),
        lines_table in vec(any::<u8>(), 0..80),
        first_line in any::<i32>(),
        unit in any::<u32>(),
    ) {
        let _ = max_depth(version, &code, &table);
        let _ = exceptions::decode(&table);
        let _ = find_handler(&table, unit as usize);
        let _ = find_handler(&table, unit as usize % 100);
        let _ = lines::decode(&lines_table, first_line);
        let _ = line_of(&lines_table, first_line, unit % 100);
        let parts =
            Parts { code: &code, exception_table: &table, line_table: &lines_table, first_line };
        let _ = Code::decode(version, &parts);
    }

    #[test]
    fn code_that_decodes_comes_back(
        (version, code) in any_version().prop_flat_map(|v| (Just(v), likely_code(v))),
        table in prop_oneof![
            vec(any::<u8>(), 0..20),
            valid_entries().prop_map(|entries| exceptions::encode(&entries).unwrap()),
        ],
    ) {
        let _ = max_depth(version, &code, &table);
        let _ = max_depth(version, &code, &[]);
        if let Ok(instructions) = decode(version, &code) {
            prop_assert_eq!(assemble(version, &instructions).unwrap().code, code);
        }
    }

    #[test]
    fn instructions_come_back(
        (version, given) in any_version().prop_flat_map(|v| (Just(v), valid_instructions(v))),
    ) {
        let assembly = assemble(version, &given).unwrap();
        let found = decode(version, &assembly.code).unwrap();
        prop_assert_eq!(found.len(), given.len());
        for (at, (found, given)) in found.iter().zip(&given).enumerate() {
            prop_assert_eq!(found.offset, assembly.offsets[at]);
            prop_assert_eq!((found.opcode, found.target), (given.opcode, given.target));
            prop_assert!(found.target.is_some() || found.arg == given.arg);
            prop_assert!(found.prefixes >= given.prefixes);
        }
        prop_assert_eq!(assemble(version, &found).unwrap(), assembly);
    }

    #[test]
    fn locations_come_back(
        runs in vec((1..=8_u32, any_location()), 0..60),
        first_line in 0..400_i32,
    ) {
        let mut unit = 0;
        let place = |(units, location)| {
            let start = unit;
            unit += units;
            lines::Entry { start, end: unit, location }
        };
        let entries: Vec<lines::Entry> = runs.into_iter().map(place).collect();
        let table = lines::encode(&entries, first_line).unwrap();
        prop_assert_eq!(&lines::decode(&table, first_line).unwrap(), &entries);
        for entry in &entries {
            let line = entry.location.map(|location| location.line);
            prop_assert_eq!(line_of(&table, first_line, entry.end - 1), line);
        }
    }

    #[test]
    fn the_handler_search_agrees_with_a_scan(entries in valid_entries()) {
        let table = exceptions::encode(&entries).unwrap();
        prop_assert_eq!(&exceptions::decode(&table).unwrap(), &entries);
        let edges = entries.iter().flat_map(|e| [e.start, e.end]);
        for edge in edges.chain([0, 1_000_000]) {
            for unit in [edge.saturating_sub(1), edge, edge + 1] {
                let scan = entries.iter().find(|e| (e.start..e.end).contains(&unit));
                let found = find_handler(&table, unit as usize);
                prop_assert_eq!(
                    found.map(|h| (h.target, h.depth, h.lasti)),
                    scan.map(|e| (e.target, e.depth, e.lasti))
                );
            }
        }
    }

    #[test]
    fn an_insertion_keeps_what_was_there(
        (version, given) in any_version().prop_flat_map(|v| (Just(v), valid_instructions(v))),
        place in any::<prop::sample::Index>(),
        count in 0..300_usize,
    ) {
        let at = place.index(given.len() + 1);
        let locations = vec![None; given.len()];
        let before = Code {
            version, first_line: 1, instructions: given, regions: vec![], locations,
        };
        let mut after = before.clone();
        let nop = Instruction::new(version, Opcode::NOP, 0).unwrap();
        after.insert(InstrId(at as u32), &vec![nop; count], None);
        let assembled = after.assemble().unwrap();
        let mut found = decode(version, &assembled.code).unwrap();
        found.drain(at..at + count);
        let back = |id: InstrId| if id.index() >= at { InstrId(id.0 - count as u32) } else { id };
        for (found, given) in found.iter().zip(&before.instructions) {
            prop_assert_eq!(found.opcode, given.opcode);
            prop_assert_eq!(found.target.map(back), given.target);
        }
    }
}
