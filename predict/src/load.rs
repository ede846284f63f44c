//! `predict optimize` of a language model under a load asks what `predict serve` answers over settings: its words become those.

use std::ffi::OsString;

/// What says that requests come.
const LOAD: [&str; 3] = ["--prompt", "--answer", "--trace"];
/// What is tried where nobody says what.
const OVER: &str = "cap,layout,seqs,tokens";

/// Whether a word is an option of that name, with or without its value.
fn is_of(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// What `serve` calls a metric.
fn objective(metric: &str) -> &str {
    if metric == "time" { "latency" } else { metric }
}

/// The words of `serve` that ask the same; of all other words none.
pub fn served(words: &[OsString]) -> Option<Vec<OsString>> {
    let typed: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let has = |option: &str| typed.iter().any(|word| is_of(word, option));
    if typed.first() != Some(&"optimize") || !LOAD.iter().any(|option| has(option)) {
        return None;
    }
    let mut served: Vec<String> = vec!["serve".into()];
    let mut rest = typed[1..].iter();
    while let Some(word) = rest.next() {
        match word.strip_prefix("--metric") {
            Some("") => served.extend(["--objective".into(), objective(rest.next().unwrap_or(&"")).into()]),
            Some(value) if value.starts_with('=') => served.push(format!("--objective={}", objective(&value[1..]))),
            _ => served.push((*word).into()),
        }
    }
    if !has("--over") {
        served.extend(["--over", OVER].map(Into::into));
    }
    if !has("--metric") && !has("--objective") {
        served.extend(["--objective", "energy"].map(Into::into));
    }
    Some(served.into_iter().map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        Some(served(&words)?.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_load_is_served_over_settings() {
        let both = "--net a --gpu h100 --prompt 8 --answer 8 --tpot 50ms";
        assert_eq!(
            of(&format!("optimize {both}")),
            Some(format!("serve {both} --over cap,layout,seqs,tokens --objective energy"))
        );
        assert_eq!(
            of(&format!("optimize {both} --metric time --over cap")),
            Some(format!("serve {both} --objective latency --over cap"))
        );
        assert_eq!(
            of("optimize --trace=a --metric=time --over=cap"),
            Some("serve --trace=a --objective=latency --over=cap".into())
        );
        assert_eq!(
            of("optimize --prompt 1 --objective cost --over cap"),
            Some("serve --prompt 1 --objective cost --over cap".into())
        );
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for line in ["optimize --net a --gpu v100 --batch 1", "serve --prompt 8 --answer 8", "--net a --prompts 8"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
