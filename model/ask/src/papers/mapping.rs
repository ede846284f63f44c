//! What printed names mean here: `data/published/papers/papers.toml`, `papers/1`.

use super::line::{COLUMNS, Case};
use joulecast_model::base::file::{FileError, check_schema};
use joulecast_model::base::precision::{Precision, named_enum};
use joulecast_model::base::text::{closest, toml_error};
use joulecast_model::catalog;
use joulecast_model::kernel::features::library_age;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Spanned;

named_enum!(
    /// What a column of values says.
    Metric {
        /// Time of a step.
        StepTime = "step_time",
        /// Samples per second.
        Rate = "samples_per_second",
        /// Energy of a step.
        StepEnergy = "step_energy",
        /// Mean power.
        Power = "power",
        /// Time of a run of many steps.
        RunTime = "run_time",
        /// Energy of a run of many steps.
        RunEnergy = "run_energy",
        /// Device memory in use.
        Memory = "memory",
        /// Something that is not predicted.
        Other = "other",
    }
);

named_enum!(
    /// What is compared.
    Quantity {
        /// Time of a step, in seconds.
        Time = "time",
        /// Mean power, in watts.
        Power = "power",
        /// Energy of a step, in joules.
        Energy = "energy",
        /// Device memory in use, in bytes.
        Memory = "memory",
    }
);

/// A paper and what its names mean.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Name of its file of values, without `.csv`.
    pub key: String,
    /// Authors, year, title.
    pub title: String,
    /// Which tables, and what they hold.
    pub tables: String,
    /// Libraries behind the values, in words.
    pub software: String,
    pub(super) metrics: BTreeMap<String, Metric>,
    pub(super) precisions: BTreeMap<String, Precision>,
    pub(super) frameworks: BTreeMap<String, ProfileOf>,
    pub(super) gpus: BTreeMap<String, String>,
    /// Per printed network its readings, in the order of the file: reading (empty where there is one), network.
    pub(super) networks: BTreeMap<String, Vec<(String, String)>>,
    pub(super) samples: BTreeMap<String, u64>,
    /// Per printed number of GPUs, where they are not all of the printed kind: how many of which devices.
    pub(super) groups: BTreeMap<u64, Vec<(u64, String)>>,
    /// Per printed device how many sockets it has, where more than one.
    pub(super) sockets: BTreeMap<String, u64>,
    /// Over how many boards of a node the printed power and memory are means, those that do not run among them.
    pub(super) boards: u64,
    /// What is not printed and fitted instead.
    pub(super) unknown: Option<Unknown>,
    /// Rows to which a number of a profile was fitted.
    pub(super) fitted: Vec<Rule>,
    pub(super) distorted: Vec<Rule>,
}

/// Batches that a paper may have run, and the frameworks to whose rows each network's is fitted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unknown {
    pub batches: Vec<u64>,
    pub fitted_on: Vec<String>,
}

impl Paper {
    /// The network that a printed name stands for, whatever the data: of several readings the paper's text.
    pub fn network(&self, printed: &str) -> Option<&str> {
        self.networks.get(printed)?.first().map(|(_, ours)| ours.as_str())
    }

    /// The device that a printed name stands for.
    pub fn gpu(&self, printed: &str) -> Option<&str> {
        self.gpus.get(printed).map(String::as_str)
    }

    /// Samples of a run over data of a printed name.
    pub fn samples(&self, dataset: &str) -> Option<u64> {
        self.samples.get(dataset).copied()
    }

    /// The networks that a case stands for, by reading: of its framework, of its dataset, or of its name alone.
    pub(super) fn readings(&self, case: &Case) -> Option<&Vec<(String, String)>> {
        let on_data = format!("{} on {}", case.network, case.dataset);
        let in_framework = format!("{on_data} in {}", case.framework);
        [in_framework, on_data, case.network.clone()].iter().find_map(|name| self.networks.get(name))
    }
}

impl Metric {
    /// What it is compared as.
    pub(super) fn quantity(self) -> Quantity {
        match self {
            Self::Power => Quantity::Power,
            Self::StepEnergy | Self::RunEnergy => Quantity::Energy,
            Self::Memory => Quantity::Memory,
            Self::StepTime | Self::Rate | Self::RunTime | Self::Other => Quantity::Time,
        }
    }
}

/// The profile that stands for a framework.
#[derive(Clone, Debug)]
pub(super) struct ProfileOf {
    pub profile: String,
    /// Version as printed, and its age.
    pub cudnn: Option<(String, f64)>,
}

/// Rows that are no test, and why: their values contradict others of the paper, or something was fitted to them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(rename = "where")]
    pub only: BTreeMap<String, String>,
    pub quantities: Vec<Quantity>,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    paper: Vec<PaperFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    key: String,
    title: String,
    tables: String,
    software: String,
    metrics: BTreeMap<String, Metric>,
    precisions: BTreeMap<String, Precision>,
    frameworks: BTreeMap<String, ProfileFile>,
    gpus: BTreeMap<String, Spanned<String>>,
    networks: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(default)]
    samples: BTreeMap<String, u64>,
    #[serde(default)]
    groups: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(default)]
    sockets: BTreeMap<String, u64>,
    #[serde(default = "one")]
    boards: u64,
    unknown: Option<Unknown>,
    #[serde(default)]
    fitted: Vec<Spanned<Rule>>,
    #[serde(default)]
    distorted: Vec<Spanned<Rule>>,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    profile: Spanned<String>,
    cudnn: Option<Spanned<String>>,
}

/// Where in the file something is wrong.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn wrong<T>(&self, at: &Spanned<T>, what: impl std::fmt::Display) -> FileError {
        let head = self.0.get(..at.span().start).unwrap_or_default();
        FileError::value(format!("line {}", head.matches('\n').count() + 1), what.to_string())
    }

    fn known<'n>(
        &self,
        name: &Spanned<String>,
        what: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<String, FileError> {
        let wanted = name.get_ref();
        let names: Vec<&str> = names.collect();
        if names.contains(&wanted.as_str()) {
            return Ok(wanted.clone());
        }
        let near = closest(wanted, names.into_iter());
        Err(self.wrong(name, format!("no {what} named \"{wanted}\"{near}")))
    }

    /// One network, or one per reading.
    fn readings(&self, value: &Spanned<toml::Value>) -> Result<Vec<(String, String)>, FileError> {
        let network = |reading: &str, name: &toml::Value| {
            let name = name.as_str().ok_or_else(|| self.wrong(value, "a network is a name"))?;
            let name = Spanned::new(value.span(), name.to_string());
            Ok::<_, FileError>((reading.to_string(), self.known(&name, "network", catalog::network_names())?))
        };
        match value.get_ref() {
            toml::Value::Table(readings) if !readings.is_empty() => {
                readings.iter().map(|(reading, name)| network(reading, name)).collect()
            }
            name => Ok(vec![network("", name)?]),
        }
    }

    fn profile(&self, file: ProfileFile) -> Result<ProfileOf, FileError> {
        let names = catalog::framework_names();
        let cudnn = file.cudnn.map(|version| {
            let age = library_age(version.get_ref());
            let age = age.ok_or_else(|| self.wrong(&version, format!("\"{}\" is not a version", version.get_ref())))?;
            Ok::<_, FileError>((version.into_inner(), age))
        });
        Ok(ProfileOf { profile: self.known(&file.profile, "framework profile", names)?, cudnn: cudnn.transpose()? })
    }

    fn paper(&self, file: PaperFile) -> Result<Paper, FileError> {
        if file.boards == 0 {
            return Err(FileError::value("boards", "a mean is over one board at least"));
        }
        for rule in file.distorted.iter().chain(&file.fitted) {
            if let Some(column) = rule.get_ref().only.keys().find(|c| !COLUMNS.contains(&c.as_str())) {
                let near = closest(column, COLUMNS.into_iter());
                return Err(self.wrong(rule, format!("no column named \"{column}\"{near}")));
            }
        }
        let gpu = |(printed, name): (String, Spanned<String>)| {
            Ok::<_, FileError>((printed, self.known(&name, "gpu", catalog::gpu_names())?))
        };
        let groups = |why: String| FileError::value("groups", why);
        let group = |(printed, members): (String, BTreeMap<String, u64>)| {
            let gpus = printed.parse::<u64>().map_err(|_| groups(format!("\"{printed}\" is not a number of GPUs")))?;
            if members.values().sum::<u64>() != gpus {
                return Err(groups(format!("the members of {gpus} GPUs are not {gpus}")));
            }
            match members.keys().find(|name| !catalog::gpu_names().any(|known| known == name.as_str())) {
                Some(unknown) => Err(groups(format!("no gpu named \"{unknown}\""))),
                None => Ok((gpus, members.into_iter().map(|(name, count)| (count, name)).collect())),
            }
        };
        Ok(Paper {
            groups: file.groups.into_iter().map(group).collect::<Result<_, _>>()?,
            key: file.key,
            title: file.title,
            tables: file.tables,
            software: file.software,
            metrics: file.metrics,
            precisions: file.precisions,
            frameworks: collect(file.frameworks, |profile| self.profile(profile))?,
            gpus: file.gpus.into_iter().map(gpu).collect::<Result<_, _>>()?,
            networks: collect(file.networks, |value| self.readings(&value))?,
            samples: file.samples,
            sockets: file.sockets,
            boards: file.boards,
            unknown: file.unknown,
            fitted: file.fitted.into_iter().map(Spanned::into_inner).collect(),
            distorted: file.distorted.into_iter().map(Spanned::into_inner).collect(),
        })
    }
}

fn collect<T, U>(
    map: BTreeMap<String, T>,
    read: impl Fn(T) -> Result<U, FileError>,
) -> Result<BTreeMap<String, U>, FileError> {
    map.into_iter().map(|(key, value)| Ok((key, read(value)?))).collect()
}

/// Reads the mapping of all papers.
///
/// # Errors
/// One line that names the line of the file: malformed, or a name that the catalog does not have.
pub(super) fn from_toml(text: &str) -> Result<Vec<Paper>, FileError> {
    // Not packed, as other files are: what names are read from must say where they stand.
    let file: File = toml::from_str(text).map_err(|e| FileError::Syntax(toml_error(&e, text)))?;
    check_schema(&file.schema, "papers/1")?;
    file.paper.into_iter().map(|paper| Text(text).paper(paper)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(line: &str) -> String {
        format!(
            "schema = \"papers/1\"\n[[paper]]\nkey = \"a\"\ntitle = \"\"\ntables = \"\"\nsoftware = \"\"\n\
             precisions = {{}}\nmetrics = {{}}\n{line}\n"
        )
    }

    #[test]
    fn a_wrong_name_is_an_error_that_names_its_line() {
        for (line, expected) in [
            (
                "gpus = {X = \"v10\"}\nnetworks = {}\nframeworks = {}",
                "line 9: no gpu named \"v10\"; did you mean \"v100\"?",
            ),
            ("gpus = {}\nnetworks = {N = \"vgg61\"}\nframeworks = {}", "line 10: no network named \"vgg61\""),
            (
                "gpus = {}\nnetworks = {N = {text = \"vgg16\", other = \"x\"}}\nframeworks = {}",
                "line 10: no network named \"x\"",
            ),
            ("gpus = {}\nnetworks = {}\nframeworks = {F = {profile = \"cafe\"}}", "line 11: no framework profile"),
            (
                "gpus = {}\nnetworks = {}\nframeworks = {F = {profile = \"caffe\", cudnn = \"x\"}}",
                "line 11: \"x\" is not",
            ),
            (
                "gpus = {}\nnetworks = {}\nframeworks = {}\n[[paper.distorted]]\nwhere = {net = \"a\"}\nquantities = []\nwhy = \"\"",
                "no column named \"net\"",
            ),
            ("gpu = {}", "line 9"),
        ] {
            let error = from_toml(&mapping(line)).expect_err("a wrong name");
            assert!(error.to_string().contains(expected), "{error} for {line}");
        }
    }

    #[test]
    fn a_mean_over_no_board_is_an_error() {
        let error = from_toml(&mapping("gpus = {}\nnetworks = {}\nframeworks = {}\nboards = 0")).expect_err("none");
        assert!(error.to_string().contains("boards"), "{error}");
    }

    #[test]
    fn readings_keep_their_order() {
        let text = mapping("gpus = {}\nframeworks = {}\nnetworks = {N = {text = \"vgg16\", also = \"alexnet\"}}");
        let papers = from_toml(&text).expect("a mapping");
        let readings: Vec<&str> = papers[0].networks["N"].iter().map(|(reading, _)| reading.as_str()).collect();
        assert_eq!(readings, ["text", "also"]);
    }
}
