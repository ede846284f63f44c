//! The source of our kernels: a prelude, then every typed file once per storage format in a namespace of its own.

/// One `.cu` file, compiled once per storage format.
struct File {
    name: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(File { name: $name, text: include_str!(concat!("../../cuda/", $name, ".cu")) }),+]
    };
}

const PRELUDE: &str = include_str!("../../cuda/prelude.cu");
const CEILINGS: &str = include_str!("../../cuda/ceilings.cu");
const TYPED: &[File] = files!(
    "elementwise",
    "channels",
    "reductions",
    "rows",
    "pooling",
    "maps",
    "response_norm",
    "copies",
    "random",
    "optimizer",
);

/// Storage formats: suffix of the functions' names, type in the source.
const FORMATS: &[(&str, &str)] = &[("f32", "float"), ("f16", "half_bits"), ("bf16", "bfloat_bits")];

/// The part of the source that holds one function: it compiles on its own, in a second or a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Subject and storage format, as `pooling_f16`: the same for all functions of one source.
    pub name: String,
    /// CUDA C++; needs no header.
    pub source: String,
}

/// The whole source: every kernel for every storage format.
pub fn source() -> String {
    let mut text = PRELUDE.to_string();
    for (suffix, format) in FORMATS {
        for file in TYPED {
            text.push_str(&typed(file, suffix, format));
        }
    }
    text.push_str(&plain());
    text
}

/// The module that holds a function; `None` where there is no such function.
pub fn module(function: &str) -> Option<Module> {
    if declared(CEILINGS).iter().any(|name| name == function) {
        return Some(Module { name: "ceilings".to_string(), source: format!("{PRELUDE}{}", plain()) });
    }
    let (base, (suffix, format)) =
        FORMATS.iter().find_map(|f| Some((function.strip_suffix(f.0)?.strip_suffix('_')?, f)))?;
    let file = TYPED.iter().find(|file| declared(file.text).iter().any(|name| name == base))?;
    Some(Module {
        name: format!("{}_{suffix}", file.name),
        source: format!("{PRELUDE}{}", typed(file, suffix, format)),
    })
}

/// Names of all functions.
pub fn functions() -> Vec<String> {
    let typed = TYPED.iter().flat_map(|file| declared(file.text));
    let mut names: Vec<String> =
        typed.flat_map(|base| FORMATS.iter().map(move |(suffix, _)| format!("{base}_{suffix}"))).collect();
    names.extend(declared(CEILINGS));
    names
}

fn typed(file: &File, suffix: &str, format: &str) -> String {
    let entry = |threads: u32| format!("extern \"C\" __global__ void __launch_bounds__({threads}) name##_{suffix}");
    let undefine: String = macros(file.text).map(|name| format!("#undef {name}\n")).collect();
    format!(
        "\n#define KERNEL(name) {}\n#define WIDE_KERNEL(name) {}\nnamespace {suffix} {{\ntypedef {format} T;\n\
         #line 1 \"{}.cu\"\n{}\n}}\n{undefine}#undef KERNEL\n#undef WIDE_KERNEL\n",
        entry(256),
        entry(512),
        file.name,
        file.text,
    )
}

fn plain() -> String {
    format!(
        "\n#define PLAIN_KERNEL(name) extern \"C\" __global__ void __launch_bounds__(256) name\n\
         #line 1 \"ceilings.cu\"\n{CEILINGS}"
    )
}

/// Macros a file defines.
fn macros(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("#define ")?.split('(').next())
}

/// Functions a file declares, without suffix. Lines of a macro's own definition do not begin with its name.
fn declared(text: &str) -> Vec<String> {
    const FORMS: &[(&str, &[&str])] = &[
        ("KERNEL(", &[""]),
        ("WIDE_KERNEL(", &[""]),
        ("PLAIN_KERNEL(", &[""]),
        ("CHANNELS(", &["_flat", "_last"]),
        ("REDUCTION(", &["_runs", "_columns", "_finish"]),
        ("ROWS(", &["_few", "_units", "_ragged", "_channels", "_positions"]),
    ];
    let mut names = Vec::new();
    for line in text.lines() {
        for (form, endings) in FORMS {
            if let Some(name) = line.strip_prefix(form).and_then(|rest| rest.split([',', ')']).next()) {
                names.extend(endings.iter().map(|ending| format!("{name}{ending}")));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_has_one_module() {
        let names = functions();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name is declared twice");
        for name in &names {
            assert!(module(name).is_some(), "{name}");
        }
        assert_eq!(module("relu_forward_f16").map(|m| m.name).as_deref(), Some("elementwise_f16"));
        assert_eq!(module("no_such_kernel_f32"), None);
        assert_eq!(module("relu_forward"), None);
    }

    /// The compiler's word for it: what is declared is what the compiled text enters, for old and new architectures.
    #[test]
    fn the_source_compiles_where_the_compiler_is_there() {
        // SAFETY: only looks the library up.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return joulecast_skipped::skipped(
                "streaming::source::the_source_compiles_where_the_compiler_is_there",
                "the run-time compiler (libnvrtc) is not on this machine",
            );
        }
        let declared: BTreeSet<String> = functions().into_iter().collect();
        for arch in ["compute_75", "compute_90"] {
            let options = cudarc::nvrtc::CompileOptions {
                arch: Some(arch),
                options: vec!["--std=c++14".to_string()],
                ..Default::default()
            };
            let compiled = cudarc::nvrtc::compile_ptx_with_opts(source(), options).expect("compiles").to_src();
            let entries: BTreeSet<String> = compiled
                .lines()
                .filter_map(|line| line.split(".entry ").nth(1)?.split('(').next())
                .map(|name| name.trim().to_string())
                .collect();
            assert_eq!(entries, declared, "{arch}");
        }
    }
}
