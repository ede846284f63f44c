//! The example of the library runs, and is what the book shows.

#[path = "../examples/from_rust.rs"]
mod from_rust;

#[test]
fn the_example_runs() {
    from_rust::main().expect("it answers");
}

#[test]
fn the_book_shows_its_beginning() {
    let example = include_str!("../examples/from_rust.rs");
    let chapter = include_str!("../../reports/book/src/python.md");
    let (_, section) = chapter.split_once("## From Rust").expect("a section");
    let shown = section.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let lines = |text: &'static str| text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>();
    let example = lines(example);
    for line in lines(shown) {
        assert!(example.contains(&line), "{line}");
    }
}
