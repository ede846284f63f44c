//! The page of `predict/web`: whether its module answers as the program, in Node, and how it is shown, in Chromium. What is
//! absent is not fetched for it: the page is built by `predict/web/build.sh`.

mod program;

use joulecast_skipped::skipped;
use std::path::Path;
use std::process::Command;

/// What scripts end with where they cannot tell.
const ABSENT: i32 = 77;

/// Runs a script of the page's tests on the program.
fn run(name: &str, script: &str) {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    if !web.join("dist/joulecast.wasm").is_file() {
        return skipped(name, "predict/web/dist is not built: predict/web/build.sh");
    }
    let program = program::predict();
    let ran = Command::new("node").arg(web.join("tests").join(script)).arg(program.get_program()).output();
    let Ok(output) = ran else { return skipped(name, "no Node on this machine") };
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(ABSENT) {
        let reason = said.lines().find_map(|line| line.strip_prefix("absent: "));
        return skipped(name, reason.unwrap_or("something is absent"));
    }
    assert!(output.status.success(), "{said}{why}");
    println!("{said}");
}

#[test]
fn the_module_answers_as_the_program() {
    run("web::the_module_answers_as_the_program", "setups.mjs");
}

#[test]
fn the_page_works_in_a_browser() {
    run("web::the_page_works_in_a_browser", "browser.mjs");
}
