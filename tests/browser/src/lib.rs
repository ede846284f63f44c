//! How a browser shows a page, for tests of reports. Nothing is downloaded: without Chromium there is nothing to tell.

use joulecast_skipped::skipped;
use std::path::PathBuf;
use std::process::Command;

/// A page on a screen, in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Width of the screen.
    pub screen: u32,
    /// Width of the page: more than the screen's where it has to be moved sideways.
    pub page: u32,
    /// Width and height of every figure.
    pub figures: Vec<(u32, u32)>,
    /// Colour of the page behind everything, as in `rgb(255, 255, 255)`.
    pub paper: String,
    /// What keeps readers from it: text that is hardly seen, what has no name, what asks for something elsewhere.
    pub complaints: Vec<String>,
}

/// Light or dark, as a reader's screen may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// Wider than the narrowest window of any browser.
const LEAST_WINDOW: u32 = 800;

fn browser() -> Option<PathBuf> {
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|n| folders.iter().map(move |f| f.join(n))).find(|p| p.is_file())
}

/// Sends what the page measures to the page around it; the page itself has no script. A figure that is drawn for another width
/// is not there.
const PROBE: &str = include_str!("probe.html");

/// The page in a frame as wide as the screen is meant to be: windows of current browsers are 500 pixels wide at least. Of
/// several sizes that a page may send, the first counts.
fn frame(width: u32) -> String {
    format!(
        "<!doctype html><html><head><link rel=\"icon\" href=\"data:,\"><meta name=\"color-scheme\" content=\"light dark\"></head>\
         <body><pre id=\"found\"></pre><script>onmessage = m => {{ const found = document.getElementById('found'); \
         if (!found.textContent) found.textContent = 'PRO' + 'BE ' + m.data + ' END' }}</script>\
         <iframe src=\"page.html\" style=\"width:{width}px;height:900px;border:0\"></iframe></body></html>"
    )
}

/// How a page is shown on a screen so wide; `None` where there is no browser.
///
/// # Panics
/// When the browser does not start, or the page makes it complain.
pub fn shown(html: &str, width: u32, scheme: Scheme) -> Option<Shown> {
    let browser = browser()?;
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    std::fs::write(&page, html.replace("</body>", &format!("{PROBE}</body>"))).expect("written");
    let outside = folder.path().join("frame.html");
    std::fs::write(&outside, frame(width)).expect("written");
    let dark = u8::from(scheme == Scheme::Light);
    let output = Command::new(browser)
        .args(["--no-sandbox", "--disable-gpu", "--headless", "--hide-scrollbars", "--enable-logging=stderr"])
        .arg(format!("--blink-settings=preferredColorScheme={dark}"))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--window-size={},1000", width.max(LEAST_WINDOW)))
        // Until the frame has sent what it measured, in the page's time.
        .arg("--virtual-time-budget=10000")
        .args(["--dump-dom", &format!("file://{}", outside.display())])
        .output()
        .expect("the browser starts");
    let console = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!console.contains("CONSOLE"), "{console}");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let probe = dom.split("PROBE ").nth(1).and_then(|p| p.split(" END").next());
    let parts: Vec<&str> = probe.unwrap_or_else(|| panic!("no probe: {console}")).split('|').collect();
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is no number"));
    let size = |text: &str| text.split_once('x').map(|(w, h)| (number(w), number(h)));
    Some(Shown {
        screen: number(parts[0]),
        page: number(parts[1]),
        paper: parts[2].to_string(),
        figures: parts[3].split_whitespace().filter_map(size).filter(|(width, _)| *width > 0).collect(),
        complaints: parts[4..].join("|").split(" ; ").filter(|c| !c.is_empty()).map(str::to_string).collect(),
    })
}

/// Why a test that looks at a page is skipped.
const NONE: &str = "no Chromium on this machine";

/// Checks, for the test `name`, that a page fits phones and desktops and that so many figures are seen there, on light and on dark paper.
///
/// Without a browser the test is skipped.
///
/// # Panics
/// Where it does not, and where [`shown`] does.
pub fn check(name: &str, html: &str, figures: usize) {
    let mut papers = Vec::new();
    let narrow = [(360, Scheme::Light), (360, Scheme::Dark)];
    let wide = [(1280, Scheme::Light), (1280, Scheme::Dark), (768, Scheme::Light), (1600, Scheme::Dark)];
    for (width, scheme) in narrow.into_iter().chain(wide) {
        let Some(shown) = shown(html, width, scheme) else {
            return skipped(name, NONE);
        };
        assert_eq!((shown.screen, shown.page), (width, width), "the page is as wide as the screen");
        let seen = shown.figures.iter().filter(|(w, h)| *w > 300 && *h > 80).count();
        assert_eq!((seen, shown.figures.len()), (figures, figures), "figures on {width} pixels: {:?}", shown.figures);
        assert!(shown.complaints.is_empty(), "on {width} pixels, {scheme:?}: {:#?}", shown.complaints);
        papers.push(shown.paper);
    }
    assert_ne!(papers[0], papers[1], "a dark screen has dark paper");
    assert_eq!(papers[..2], papers[2..4]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<!doctype html><html lang=\"en\"><head><title>page</title><link rel=\"icon\" href=\"data:,\"><style>body{margin:0;background:#fff}\
        @media (prefers-color-scheme:dark){body{background:#000}}</style></head>\
        <body><figure style=\"margin:0\"><svg role=\"img\" aria-label=\"a\" width=\"320\" height=\"100\"></svg></figure></body></html>";

    #[test]
    fn what_is_seen_is_measured() {
        let Some(shown) = shown(PAGE, 400, Scheme::Light) else {
            return skipped("browser::what_is_seen_is_measured", NONE);
        };
        let white = "rgb(255, 255, 255)".to_string();
        assert_eq!(
            shown,
            Shown { screen: 400, page: 400, figures: vec![(320, 100)], paper: white, complaints: Vec::new() }
        );
        check("browser::what_is_seen_is_measured", PAGE, 1);
    }

    #[test]
    fn a_page_that_is_too_wide_is_seen_to_be() {
        let wide = PAGE.replace("\"320\"", "\"2000\"");
        let Some(shown) = shown(&wide, 390, Scheme::Dark) else {
            return skipped("browser::a_page_that_is_too_wide_is_seen_to_be", NONE);
        };
        assert_eq!((shown.page, shown.paper.as_str()), (2000, "rgb(0, 0, 0)"));
    }

    #[test]
    fn what_keeps_readers_out_is_told() {
        let bad = PAGE
            .replace(" lang=\"en\"", "")
            .replace("</body>", "<p style=\"color:#999;background:#fff\">faint</p><button></button><img src=\"data:,\">\
                <h3 id=\"a\">x</h3><div id=\"a\" style=\"overflow-x:auto;width:50px\"><table><tr><td>aaaaaaaaaaaaaaaaaaaaaaaaaa</td></tr></table></div></body>");
        let Some(shown) = shown(&bad, 1280, Scheme::Light) else {
            return skipped("browser::what_keeps_readers_out_is_told", NONE);
        };
        let said = shown.complaints.join("\n");
        for part in [
            "contrast 2.8",
            "no language",
            "button has no name",
            "img has no alt",
            "two ids a",
            "no keyboard reaches",
            "h3 after",
        ] {
            assert!(said.contains(part), "no {part} in\n{said}");
        }
    }
}
