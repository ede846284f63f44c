//! Every `predict` command of the README works as it is written.

mod program;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Commands of the README's code blocks, without the remark that two spaces set apart.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).expect("a README");
    let mut inside = false;
    let mut list = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside && line.starts_with("predict ") {
            list.push(line.split("  ").next().unwrap_or(line).to_string());
        } else {
            // In the text between back quotes.
            let quoted = line.split('`').skip(1).step_by(2).filter(|part| part.starts_with("predict --net"));
            list.extend(quoted.map(str::to_string));
        }
    }
    list
}

fn predict(folder: &Path, command: &str) -> std::process::Output {
    let words = command.split_whitespace().skip(1);
    program::predict().args(words).current_dir(folder).output().expect("predict starts")
}

/// The files that commands name, made by the program itself.
fn prepare(folder: &Path) {
    let data = root().join("data");
    fs::create_dir_all(folder.join("data/capacity")).expect("a folder");
    fs::copy(data.join("gpus/t4.toml"), folder.join("my_gpu.toml")).expect("a copy");
    let config = root().join("model/tests/huggingface/qwen3_8b.json");
    fs::create_dir_all(folder.join("Qwen3-8B")).expect("a folder");
    fs::copy(config, folder.join("Qwen3-8B/config.json")).expect("a copy");
    fs::copy(data.join("capacity/tagging.toml"), folder.join("data/capacity/tagging.toml")).expect("a copy");
    fs::create_dir_all(folder.join("Qwen3-8B")).expect("a folder");
    let config = root().join("model/tests/huggingface/qwen3_8b.json");
    fs::copy(config, folder.join("Qwen3-8B/config.json")).expect("a copy");
    for command in
        ["predict convert squeezenet1_1 --output my_net.toml", "predict convert alexnet --to onnx --output model.onnx"]
    {
        let output = predict(folder, command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What the README shows of its first command is what that prints.
#[test]
fn the_first_answer_is_the_program_s() {
    let text = fs::read_to_string(root().join("README.md")).expect("a README");
    let shown = text.split("```\n").find(|block| block.starts_with("vgg16 on v100")).expect("an answer");
    let output = predict(&root(), "predict --net vgg16 --gpu v100 --batch 64");
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown);
}

#[test]
fn every_command_works_as_written() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let commands = commands();
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands {
        // The whole zoo on all GPUs takes long in a build for tests: two networks on two GPUs.
        let shorter = command.replace("--net all --gpu all", "--net resnet18,alexnet --gpu v100,t4");
        // A reader's own file of that name would be in the way.
        if let Some((_, rest)) = shorter.split_once(" convert ").and_then(|(_, rest)| rest.split_once("--output ")) {
            fs::remove_file(folder.path().join(rest.trim())).ok();
        }
        let output = predict(folder.path(), &shorter);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
