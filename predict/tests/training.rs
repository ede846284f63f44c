//! Training steps, whole trainings and several GPUs as a user asks for them.

mod program;

use std::process::Output;

fn run(arguments: &str) -> Output {
    program::predict().args(arguments.split(' ')).output().expect("the program starts")
}

fn stdout(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(arguments: &str) -> serde_json::Value {
    serde_json::from_str(&stdout(&format!("{arguments} --format json"))).expect("JSON")
}

fn number(document: &serde_json::Value, path: &str) -> f64 {
    document.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("no {path}"))
}

/// Arguments that are refused with exit 2 and one line that says why.
fn refused(arguments: &str, why: &str) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
    assert!(error.contains(why), "{arguments}: {error}");
}

/// One kind of GPU by two names is one kind.
#[test]
fn kinds_of_gpus_are_told_apart_by_what_they_are() {
    let arguments = ["--net", "lenet5", "--gpus", "2xv100,2xV100-SXM2", "--batch", "8", "--mode", "training"];
    let output = program::predict().args(arguments).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("v100 and V100-SXM2 are one kind of GPU: write 4xV100-SXM2"), "{error}");
}

#[test]
fn several_gpus_split_a_batch_or_multiply_it() {
    let base = "--net resnet50 --gpu v100 --mode training";
    let (one, four) = (json(&format!("{base} --batch 32")), json(&format!("{base} --batch 128 --gpus 4")));
    assert_eq!(
        (number(&four, "/gpus"), number(&four, "/batch"), number(&four, "/devices/0/batch")),
        (4.0, 128.0, 32.0)
    );
    assert!(number(&four, "/time_s") > number(&one, "/time_s"));
    assert!(number(&four, "/time_s") < 1.3 * number(&one, "/time_s"));
    let each = number(&four, "/devices/0/energy_j");
    assert!((number(&four, "/energy_j") / (4.0 * each) - 1.0).abs() < 1e-9);
    assert_eq!(number(&four, "/communication/gradient_bytes"), 25_557_032.0 * 4.0);
    assert!(number(&four, "/communication/exposed_s") <= number(&four, "/communication/time_s"));
    let weak = json(&format!("{base} --batch 32 --gpus 4 --scaling weak"));
    assert_eq!(number(&weak, "/time_s"), number(&four, "/time_s"));
    assert!(stdout(&format!("{base} --batch 128 --gpus 4")).contains("4 x v100"));
}

#[test]
fn a_step_waits_for_its_samples() {
    let base = "--net alexnet --gpu v100 --batch 128";
    let free = json(base);
    assert!(free["input"].is_null());
    let half = number(&free, "/samples_per_s") / 2.0;
    let fed = json(&format!("{base} --input-rate {half}"));
    assert!((number(&fed, "/samples_per_s") / half - 1.0).abs() < 1e-9);
    assert!((number(&fed, "/input/waits_s") / number(&free, "/time_s") - 1.0).abs() < 1e-9);
    assert!(number(&fed, "/waiting_s") >= number(&fed, "/input/waits_s"));
    assert!(number(&fed, "/power_w") < number(&free, "/power_w"));
    assert!(number(&fed, "/energy_j") > number(&free, "/energy_j"));
    let several = "--net alexnet --gpu v100 --batch 1024 --gpus 4 --mode training --framework mxnet";
    let named = json(&format!("{several} --input-rate image-iter-20-cores"));
    assert!((number(&named, "/time_s") - 1024.0 / 1600.0).abs() < 1e-9);
    let each = number(&named, "/devices/0/energy_j");
    assert!((number(&named, "/energy_j") / (4.0 * each) - 1.0).abs() < 1e-9);
    assert!(stdout(&format!("{several} --input-rate 100")).contains("waits for input"));
    assert!(stdout("list inputs").contains("image-iter-20-cores"));
    refused(&format!("{base} --input-rate fast"), "no input named \"fast\"");
    refused(&format!("{base} --input-rate 0"), "above 0");
    refused("--net gpt2 --gpu h200 --batch 1 --generate 4 --input-rate 10", "not of --generate");
}

#[test]
fn nodes_have_a_size() {
    let base = "--net resnet50 --gpu v100 --gpus 16 --batch 512 --mode training";
    refused(base, "more than the 8 that nvlink2 joins in a node");
    let two = json(&format!("{base} --interconnect infiniband-fdr"));
    let name = "nvlink2 in nodes of 8, infiniband-fdr between 2";
    assert_eq!(two.pointer("/communication/interconnect"), Some(&name.into()));
    let one = json(&format!("{base} --interconnect nvlink2"));
    assert!(number(&one, "/communication/time_s") < number(&two, "/communication/time_s"));
    assert!(one["warnings"].to_string().contains("as if they were in one node"));
}

#[test]
fn a_program_starts_before_its_first_step() {
    let base = "--net alexnet --gpu v100 --batch 64 --mode training --epochs 1 --dataset-size 64000";
    let (without, with) = (json(base), json(&format!("{base} --program-start 60")));
    assert_eq!(number(&without, "/training/start_s"), 0.0);
    assert!((number(&with, "/training/time_s") - number(&without, "/training/time_s") - 60.0).abs() < 1e-9);
    assert!(number(&with, "/training/energy_j") > number(&without, "/training/energy_j"));
    assert!(number(&json(&format!("{base} --framework tensorflow")), "/training/start_s") > 0.0);
}

#[test]
fn mixed_gpus_wait_for_the_slowest() {
    let mixed =
        json("--net caffenet --gpus 2xtitan-x-pascal,2xtitan-x-maxwell --batch 64 --mode training --framework caffe");
    let slow = number(&mixed, "/devices/1/busy_s");
    assert!(number(&mixed, "/devices/0/busy_s") < slow && slow < number(&mixed, "/time_s"));
    assert_eq!(mixed.pointer("/communication/interconnect"), Some(&"pcie3-host".into()));
    assert_eq!(mixed.pointer("/gpu"), Some(&"2xtitan-x-pascal,2xtitan-x-maxwell".into()));
}

#[test]
fn impossible_configurations_say_why() {
    refused("--net vgg16 --gpu v100 --batch 1 --optimizer adam", "--optimizer is of a training");
    refused("--net resnet50 --gpu v100 --gpus 3 --batch 64", "63 or 66");
    refused("--net resnet50 --gpu v100 --gpus 2 --batch 64 --interconnect nvlnk2", "nearest: nvlink2");
    refused("--net resnet50 --gpu tegra-x1 --gpus 2 --batch 64", "--interconnect");
    refused("--net resnet50 --gpu v100 --gpus 2xv100 --batch 64", "leave --gpu out");
    refused("--net resnet50 --gpus 2 --batch 64", "which GPU");
    refused("--net resnet50 --gpu i7-6700k --batch 8 --gpus 2", "is a processor");
    refused("--net resnet50 --gpus 2xv100,2xi7-6700k --batch 8 --mode training", "is a processor");
    refused("--net resnet50 --gpus 2xv100,2xk20m --batch 8 --interconnect nvlink2", "pcie3-host does");
    refused("--net resnet50 --gpu p100-sxm2 --gpus 2 --batch 8 --interconnect nvlink2", "nvlink1 does");
    refused("--net resnet50 --gpu k20m --batch 8 --precision bf16", "has no units that compute in bf16");
    refused(
        "--net resnet50 --gpus 1xv100,1xtitan-x-maxwell --batch 8 --precision bf16",
        "has no units that compute in bf16",
    );
    refused("--net resnet50 --gpu v100 --batch 8 --scaling weak", "--gpus");
    refused("--net resnet50 --gpu v100 --batch 8 --mode training --framework tensorrt", "inference only");
    assert!(run("--net resnet50 --gpu v100 --batch 64 --gpus 32").status.success(), "inference sums nothing");
    refused("--net resnet50 --gpu i7-6700k --batch 8 --launch graph", "no CUDA graphs");
    refused("--net resnet50 --gpu v100 --batch 8 --epochs 2 --dataset-size 100", "--mode training");
    refused("optimize --net resnet50 --gpu v100 --gpus 2 --batch 8", "one GPU");
    let output = run("--net resnet50 --gpu v100 --batch 4096 --mode training --require-fit");
    assert_eq!(output.status.code(), Some(1));
    let output = run("--net vgg16 --gpu k20m --batch max --input image=3x8192x8192 --mode training");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("not even one sample"), "{error}");
}

#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let base = "--net resnet50 --gpu v100 --mode training --framework pytorch";
    let largest = number(&json(&format!("{base} --batch max")), "/batch") as u64;
    assert!(json(&format!("{base} --batch {largest}"))["fits_in_memory"] == true);
    assert!(json(&format!("{base} --batch {}", largest + 1))["fits_in_memory"] == false);
    let adam = number(&json(&format!("{base} --batch max --optimizer adam")), "/batch") as u64;
    assert!(adam < largest);
    let two = number(&json(&format!("{base} --batch max --gpus 2")), "/batch") as u64;
    assert_eq!(two, 2 * largest);
}

#[test]
fn phases_and_the_optimizer_have_their_own_times() {
    let update = |optimizer: &str| {
        let document = json(&format!("--net vgg16 --gpu v100 --batch 16 --mode training --optimizer {optimizer}"));
        for phase in ["forward", "backward_data", "backward_weights", "update"] {
            assert!(number(&document, &format!("/phases/{phase}/time_s")) > 0.0, "{phase}");
        }
        (number(&document, "/phases/update/time_s"), number(&document, "/memory/optimizer_state"))
    };
    let [sgd, momentum, adam] = ["sgd", "momentum", "adam"].map(update);
    assert!(sgd.0 < momentum.0 && momentum.0 < adam.0, "{sgd:?} {momentum:?} {adam:?}");
    assert_eq!((sgd.1, adam.1), (0.0, 2.0 * momentum.1));
}

#[test]
fn a_whole_training_is_its_steps_and_has_a_price() {
    let base =
        "--net resnet50 --gpu v100 --batch 64 --mode training --epochs 90 --dataset-size 1281167 --price-kwh 0.3";
    let document = json(base);
    let iterations = number(&document, "/training/iterations");
    assert_eq!(iterations, 90.0 * 20_019.0);
    let energy = number(&document, "/training/energy_j");
    assert!((energy / (number(&document, "/energy_j") * iterations) - 1.0).abs() < 1e-9);
    assert!((number(&document, "/training/cost") / (energy / 3.6e6 * 0.3) - 1.0).abs() < 1e-9);
    let text = stdout(base);
    for part in ["90 epochs of 1,281,167 samples", "iterations", "kWh", "cost"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn a_jump_of_the_library_is_named_and_can_be_switched_off() {
    let base = "--net gait_resnet_text --gpu titan-x-pascal --batch 64 --mode training --framework caffe --layers";
    let (without, with) = (stdout(base), stdout(&format!("{base} --cudnn 6.0")));
    assert!(!without.contains("slow-weight-gradient"));
    assert_eq!(with.matches("slow-weight-gradient").count(), 4);
    assert!(!stdout(&format!("{base} --cudnn 6.0 --best-algorithms")).contains("slow-weight-gradient"));
    assert!(!stdout(&base.replace("--batch 64", "--batch 256")).contains("slow-weight-gradient"));
}

#[test]
fn what_joins_gpus_and_which_profiles_there_are_is_listed() {
    assert!(stdout("list interconnects").contains("nvlink2"));
    for name in ["caffe", "cntk", "cudnn", "mxnet", "pytorch", "tensorflow"] {
        assert!(stdout("list frameworks").contains(name), "{name}");
    }
}

#[test]
fn a_step_with_few_samples_is_charged_whole_and_says_so() {
    let base = "--net lenet5 --gpu v100 --mode training --epochs 1 --batch 64 --dataset-size";
    assert!(stdout(&format!("{base} 10")).contains("note: the only step of an epoch has 10 samples"));
    assert!(json(&format!("{base} 100"))["warnings"].to_string().contains("the last step of an epoch has 36 samples"));
    assert!(!stdout(&format!("{base} 60000")).contains("of an epoch has"), "a tenth of a percent");
}

#[test]
fn what_each_gpu_takes_and_waits_is_told() {
    let weak = "--net resnet18 --gpu v100 --gpus 4 --mode training --batch max --scaling weak";
    let document = json(weak);
    let (all, each) = (number(&document, "/batch"), number(&document, "/devices/0/batch"));
    assert_eq!(all, 4.0 * each);
    assert!(stdout(weak).contains(&format!("batch {all} ({each} on each GPU)")));
    let mixed = "--net vgg16 --gpus 2xv100,2xt4 --batch 64 --mode training";
    let document = json(mixed);
    let part = |i: usize, name: &str| number(&document, &format!("/devices/{i}/{name}"));
    // The faster one waits; either waits for gradients.
    assert!(part(0, "waiting_energy_j") > part(1, "waiting_energy_j"));
    for i in [0, 1] {
        assert!(part(i, "waiting_energy_j") < part(i, "energy_j"));
    }
    assert!(stdout(mixed).contains("of it waiting"));
}

#[test]
fn a_library_that_models_do_not_know_is_told() {
    let base = "--net resnet50 --batch 16 --framework cudnn";
    for (gpu, version, expected) in
        [("h200", "4", "--cudnn changes nothing"), ("v100", "4.0", "cuDNN 4.0 is taken as the nearest")]
    {
        let text = stdout(&format!("{base} --gpu {gpu} --cudnn {version}"));
        assert!(text.contains(expected), "{text}");
    }
    assert!(!stdout(&format!("{base} --gpu titan-x-maxwell --cudnn 5")).contains("cudnn changes nothing"));
}
