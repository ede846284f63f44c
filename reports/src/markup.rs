//! Text within what has a syntax: Markdown, HTML, CSV.

use std::borrow::Cow;

/// Text within Markdown that is neither HTML nor a link there, whatever it holds: names that were typed, sources.
pub fn markdown_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = ' ';
    for (i, c) in text.char_indices() {
        let next = text[i + c.len_utf8()..].chars().next();
        match c {
            '<' if next.is_some_and(|n| n.is_ascii_alphabetic() || "/!?".contains(n)) => safe.push_str("&lt;"),
            '(' | '[' if before == ']' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
        before = c;
    }
    safe
}

/// A text cell: quoted where needed, and never a formula for a spreadsheet.
pub fn csv_cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let safe = if formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) };
    match safe.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", safe.replace('"', "\"\""))),
        false => safe,
    }
}

/// A sentence: it begins with a capital.
pub fn capital(line: &str) -> String {
    let mut letters = line.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    first + letters.as_str()
}

/// Text within HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Units that stand on the line of their number.
const UNITS: [&str; 16] =
    ["%", "s", "ms", "us", "J", "mJ", "kJ", "W", "kW", "MW", "MHz", "GiB", "MiB", "GB", "MWh", "kWh"];

/// A sentence within HTML: what stands between backticks is code, and a unit is not parted from its number.
pub fn prose(text: &str) -> String {
    let code = |(i, part): (usize, &str)| match i % 2 {
        0 => together(&escape(part)),
        _ => format!("<code>{}</code>", escape(part)),
    };
    match text.matches('`').count() {
        // One that has no other is a letter like others.
        odd if odd % 2 == 1 => together(&escape(text)),
        _ => text.split('`').enumerate().map(code).collect(),
    }
}

fn together(text: &str) -> String {
    let mut words = text.split(' ');
    let mut joined = words.next().unwrap_or_default().to_string();
    for word in words {
        let unit = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let of_number = joined.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit);
        joined += if of_number { "&nbsp;" } else { " " };
        joined += word;
    }
    joined
}

#[cfg(test)]
mod tests {
    #[test]
    fn sentences_have_code_and_units_beside_their_numbers() {
        for (text, expected) in [
            ("40 % of it: `calibrate run --x 5 ms`.", "40&nbsp;% of it: <code>calibrate run --x 5 ms</code>."),
            ("12.1 J, 3 samples, a s", "12.1&nbsp;J, 3 samples, a s"),
            ("(15.7 to 26.1 ms), a ` b < c", "(15.7 to 26.1&nbsp;ms), a ` b &lt; c"),
            ("", ""),
        ] {
            assert_eq!(super::prose(text), expected);
        }
    }

    #[test]
    fn a_cell_is_never_a_formula() {
        assert_eq!(super::csv_cell("=1+1"), "'=1+1");
        assert_eq!(super::csv_cell("a,b"), "\"a,b\"");
        assert_eq!(super::csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(super::csv_cell("plain"), "plain");
    }

    #[test]
    fn text_in_markdown_is_text() {
        for (text, expected) in [
            ("a < b, 2 * 3, `c` and [d]", "a < b, 2 * 3, `c` and [d]"),
            ("<script>x</script><!-- y", "&lt;script>x&lt;/script>&lt;!-- y"),
            ("![a](javascript:b) [c][d]", "![a]\\(javascript:b) [c]\\[d]"),
        ] {
            assert_eq!(super::markdown_text(text), expected);
        }
    }
}
