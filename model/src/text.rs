//! Small helpers for messages.

/// `, did you mean "x"?` for the nearest of the names, or nothing when none is near.
pub fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(wanted, names).first() {
        Some(name) => format!("; did you mean \"{name}\"?"),
        None => String::new(),
    }
}

/// Up to three names that resemble the wanted one, most similar first. Names come from files too: one that would
/// not read well in a message is not offered.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let fold = |s: &str| s.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let target = fold(wanted);
    let mut scored: Vec<(f64, &str)> = names
        .filter(|name| name.len() <= 60 && !name.chars().any(char::is_control))
        .map(|name| {
            let folded = fold(name);
            let shared =
                if !target.is_empty() && (folded.contains(&target) || target.contains(&folded)) { 0.2 } else { 0.0 };
            (strsim::jaro_winkler(&target, &folded) + shared, name)
        })
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// A TOML error in one line: where, and what is wrong.
pub fn toml_error(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', ", ");
    match error.span() {
        Some(span) => {
            let line = text.get(..span.start.min(text.len())).map_or(1, |head| head.matches('\n').count() + 1);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

/// Whether a file is of the schema that its reader knows.
///
/// # Errors
/// Names both.
pub fn check_schema(found: &str, expected: &str) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("schema is \"{found}\", expected \"{expected}\"")) }
}

/// A name from a file as it may stand in a message: short, without control characters.
pub fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.chars().nth(80).is_some() {
        text.push_str("...");
    }
    text
}

/// Names of a network that is read from another format.
#[derive(Debug, Default)]
pub struct Names {
    /// How often each was asked for, and those that were given.
    taken: std::collections::HashMap<String, u32>,
}

impl Names {
    /// A name as network files allow it (letters, digits, `.`, `_`, `/`, `-`) that was not given before, with a number
    /// behind it where it must be.
    pub fn unique(&mut self, name: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "._/-".contains(c) { c } else { '_' };
        let base: String = name.trim_start_matches('/').chars().map(legal).take(90).collect();
        let base = if base.is_empty() { "layer".to_string() } else { base };
        let mut name = base.clone();
        while self.taken.contains_key(&name) {
            let count = self.taken.entry(base.clone()).or_default();
            *count += 1;
            name = format!("{base}_{}", *count + 1);
        }
        self.taken.insert(name.clone(), 0);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_and_far_ones_not() {
        let names = ["vgg16", "vgg19", "resnet50"];
        assert_eq!(nearest("vgg-16", names.into_iter()).first(), Some(&"vgg16"));
        assert!(nearest("zzz", names.into_iter()).is_empty());
    }

    #[test]
    fn names_become_legal_and_stay_apart() {
        let mut names = Names::default();
        let given = ["/a b", "a_b", "a_b", "a_b_2", "", "\n"].map(|n| names.unique(n));
        assert_eq!(given, ["a_b", "a_b_2", "a_b_3", "a_b_2_2", "layer", "_"]);
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(&"x".repeat(200)).len(), 83);
    }
}
