//! Adds counts to the meters of this process, which `smartserver/meters.py` declares.

use pyo3::prelude::*;
use pyo3::types::PyList;

/// Add to some meters, each by its name in `smartserver/meters.py`.
pub fn count(py: Python<'_>, counts: &[(&str, u64)]) -> PyResult<()> {
    if counts.iter().all(|(_, more)| *more == 0) {
        return Ok(());
    }
    let meters = py.import("smartserver.meters")?;
    let tally = meters.getattr("here")?.getattr("tally")?;
    let tally = tally.downcast::<PyList>()?;
    for (name, more) in counts.iter().filter(|(_, more)| *more > 0) {
        let at: usize = meters.getattr(*name)?.extract()?;
        let before: u64 = tally.get_item(at)?.extract()?;
        tally.set_item(at, before + more)?;
    }
    Ok(())
}
