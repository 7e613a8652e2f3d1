//! Compiles the C shim for the CPython that PyO3 builds against, and generates its opcode numbers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The versions that Stator is built for, as `python/stator/_interpreter.py` has them, each with its C shim.
const SHIMS: &[((u8, u8), &str)] =
    &[((3, 11), "shim/v311.c"), ((3, 12), "shim/v312.c"), ((3, 13), "shim/v313.c")];

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    let config = pyo3_build_config::get();
    let version = (config.version().major, config.version().minor);
    if let Some(problem) = unsupported(config) {
        refuse(&problem);
    }
    let Some((_, shim)) = SHIMS.iter().find(|(supported, _)| *supported == version) else {
        let versions: Vec<String> =
            SHIMS.iter().map(|((major, minor), _)| format!("{major}.{minor}")).collect();
        let (versions, (major, minor)) = (versions.join(", "), version);
        refuse(&format!(
            "Stator evaluates the bytecode of CPython {versions}, and can't be built for {major}.{minor}."
        ))
    };
    // Built for another machine, PyO3 asks no interpreter; the headers of this machine's say the same.
    let named = env::var("PYO3_PYTHON").ok();
    let Some(python) = config.executable().map(str::to_owned).or(named) else {
        refuse(
            "Stator is built with CPython's headers: set PYO3_PYTHON to an interpreter that has them.",
        )
    };
    let include = include_dir(&python);

    let mut build = cc::Build::new();
    build.include(&include).include(include.join("internal"));
    if let Some(parent) = include.parent() {
        // Debian's pyconfig.h includes that of the machine's architecture from there.
        build.flag("-idirafter").flag(parent.as_os_str());
    }
    build.file(shim).file("shim/semantics.c").file("shim/c_stack.c").file("shim/clock.c");
    build.flag_if_supported("-Wno-missing-field-initializers");
    build.flag_if_supported("-Wno-unused-parameter");
    build.flag_if_supported("-fvisibility=hidden");
    build.opt_level(2);
    build.compile("stator_shim");

    let numbers = if version < (3, 13) { "opcode.h" } else { "opcode_ids.h" };
    let header =
        fs::read_to_string(include.join(numbers)).expect("the opcodes' header is readable");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("opcode.rs"), opcode_constants(&header)).expect("OUT_DIR is writable");

    for path in ["build.rs", "shim"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");
}

/// Says why there is nothing to build, without the backtrace of a panic.
fn refuse(problem: &str) -> ! {
    eprintln!("{problem}");
    std::process::exit(1)
}

/// Why Stator can't be built for an interpreter, whatever its version.
fn unsupported(config: &pyo3_build_config::InterpreterConfig) -> Option<String> {
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    let abi = config.target_abi();
    let implementation = config.implementation().to_string();
    if implementation != "CPython" {
        return Some(format!(
            "Stator takes over CPython's frames, and can't be built for {implementation}."
        ));
    }
    if is("CARGO_CFG_TARGET_OS", "windows") {
        return Some("Stator takes over frames as CPython has them on Linux and macOS, and can't be built for Windows.".into());
    }
    if !is("CARGO_CFG_TARGET_POINTER_WIDTH", "64") {
        return Some("Stator reads CPython's objects as they are on 64-bit machines, and can't be built for others.".into());
    }
    abi.kind().is_free_threaded().then(|| {
        "Stator relies on the global interpreter lock, and can't be built for a CPython without it.".into()
    })
}

/// The directory of `Python.h`, as the interpreter itself reports it.
fn include_dir(python: &str) -> PathBuf {
    let script = "import sysconfig; print(sysconfig.get_path('include'))";
    let output = Command::new(python).args(["-c", script]).output().expect("Python runs");
    assert!(output.status.success(), "{python} can't say where its headers are");
    let text = String::from_utf8(output.stdout).expect("an UTF-8 path");
    Path::new(text.trim()).to_path_buf()
}

/// `#define NAME 123` lines of `opcode.h` as Rust constants; specialised forms included.
fn opcode_constants(header: &str) -> String {
    let mut text = String::new();
    for line in header.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(number), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if name.starts_with("NB_") || name == "HAVE_ARGUMENT" {
            continue;
        }
        if let Ok(number) = number.parse::<u8>() {
            text.push_str(&format!("/// `{name}`.\npub const {name}: u8 = {number};\n"));
        }
    }
    text
}
