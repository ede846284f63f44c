//! What to tell of a library's version that is asked for.

use super::network::Step;

/// cuDNN of age 0 ([`crate::kernel::features::library_age`]).
const NEWEST: f64 = 9.0;

impl Step<'_> {
    /// What to tell of a library's version that is asked for: whether models know it.
    pub(super) fn library_warning(&self) -> Option<String> {
        let asked = self.setup.library?;
        let ages = self.kernels.iter().filter_map(|k| k.ages);
        let known = ages.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let gpu = &self.setup.gpu.name;
        match known {
            None if self.kernels.iter().any(|k| k.jump.is_some()) => None,
            None => Some(format!(
                "--cudnn changes nothing: the layer models of {gpu} do not know how old their libraries were"
            )),
            // Versions are read to one decimal.
            Some((old, new)) if asked < old - 0.05 || asked > new + 0.05 => {
                let [asked, old, new] = [asked, old, new].map(|age| NEWEST + age);
                Some(format!(
                    "cuDNN {asked:.1} is taken as the nearest that the layer models of {gpu} saw: they know {old:.1} to {new:.1}"
                ))
            }
            Some(_) => None,
        }
    }
}
