//! `--format html` of every command: one file that asks for nothing, as a browser shows it.

mod program;

use joulecast_browser::check;

fn page(arguments: &[&str]) -> String {
    let output = program::predict().args(arguments).args(["--format", "html"]).output().expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let html = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"), "{html}");
    for outside in ["src=", "<script", "url(", "@import", "href=\"http"] {
        assert!(!html.contains(outside), "{arguments:?}: {outside}");
    }
    let command = format!("<code>predict {} --format html</code>", arguments.join(" "));
    assert!(html.contains(&command), "{command}");
    for told in ["Made on 2", "data ", env!("CARGO_PKG_VERSION")] {
        assert!(html.contains(told), "{arguments:?}: {told}");
    }
    html
}

#[test]
fn a_step_is_a_page() {
    let html = page(&["--net", "resnet18", "--gpu", "v100", "--batch", "16", "--mode", "training"]);
    for part in ["<p class=\"lead\">", "Trust: ", "Why so long", "<summary>Each of ", "backward_weights", "<h2 id="] {
        assert!(html.contains(part), "no {part}");
    }
    check("predict/pages::a_step_is_a_page", &html, 1);
}

#[test]
fn shares_of_several_gpus_are_of_one() {
    let bars = |gpus: &str, batch: &str| {
        let html = page(&["--net", "resnet18", "--gpu", "v100", "--gpus", gpus, "--batch", batch]);
        let rest = html.split(" others: ").nth(1).and_then(|t| t.split(" of the e").next()).map(str::to_string);
        rest.expect("what has no bar")
    };
    // The rest of the energy is about that of the time, however many share the step.
    for (gpus, batch) in [("1", "16"), ("8", "128")] {
        let said = bars(gpus, batch);
        let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers.len() == 2 && (numbers[0] - numbers[1]).abs() < 15.0, "{gpus}: {said}");
    }
}

#[test]
fn an_answer_and_layouts_are_pages() {
    let answer = page(&["--net", "gpt2", "--gpu", "h200", "--batch", "2", "--sequence", "64", "--generate", "8"]);
    assert!(answer.contains("prefill") && answer.contains("decode"), "{answer}");
    check("predict/pages::an_answer_and_layouts_are_pages", &answer, 1);
    let laid = [
        "--net",
        "llama3_1_70b",
        "--gpu",
        "h100",
        "--precision",
        "bf16",
        "--batch",
        "8",
        "--sequence",
        "64",
        "--layouts",
    ];
    check("predict/pages::an_answer_and_layouts_are_pages", &page(&laid), 0);
}

#[test]
fn a_comparison_is_a_page() {
    let html = page(&["compare", "--net", "resnet18", "--gpu", "t4,v100,h200", "--batch", "1,16"]);
    assert!(html.contains("Least time of resnet18 at batch 1: ") && html.contains("Which GPU for what"), "{html}");
    check("predict/pages::a_comparison_is_a_page", &html, 1);
    let within = ["compare", "--net", "resnet18", "--gpu", "t4,v100", "--target-latency", "20ms", "--price", "t4=0.35"];
    assert!(page(&within).contains("Largest batch for a step within 20.0&nbsp;ms"));
}

#[test]
fn an_optimum_is_a_page() {
    let html = page(&["optimize", "--net", "resnet18", "--gpu", "v100", "--batch", "16"]);
    assert!(html.contains("% energy and") && html.contains("over the power limit"), "{html}");
    check("predict/pages::an_optimum_is_a_page", &html, 1);
    let two = page(&["optimize", "--net", "lenet5,resnet18", "--gpu", "v100", "--batch", "4"]);
    assert!(two.contains("2 networks: the setting with the least energy"), "{two}");
}

#[test]
fn a_service_is_a_page() {
    let html = page(&[
        "serve",
        "--net",
        "llama3_2_1b",
        "--gpu",
        "h100",
        "--rate",
        "4",
        "--prompt",
        "64",
        "--answer",
        "16",
        "--requests",
        "100",
        "--over",
        "cap",
    ]);
    assert!(html.contains("4.") && html.contains("for nine requests of ten") && html.contains("Settings"), "{html}");
    check("predict/pages::a_service_is_a_page", &html, 0);
}
