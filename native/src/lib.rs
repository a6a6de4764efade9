//! The work of smartserver for each record, where Python would take 70 to 160 microseconds. Each class or function here
//! is the twin of one of Python's, with its name and contract; `smartserver/records/native.py` chooses one of them.

#![deny(unsafe_code)]

use pyo3::prelude::*;

mod ancestry;
mod bases;
mod block;
mod bzr;
mod changegroup;
mod delta;
mod encoder;
mod entries;
mod expander;
mod frame;
mod frames;
mod guard;
mod hashing;
mod hg;
mod index;
mod introduced;
mod keys;
mod limits;
mod matcher;
mod meters;
mod object_store;
mod objects;
mod pack;
mod pack_file;
mod packing;
mod proof;
mod prover;
mod reader;
mod segment;
mod stored;
mod stream;
#[allow(unsafe_code)]
mod sys;
mod system;
mod texts;
mod varint;
mod writer;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<block::Block>()?;
    module.add_class::<changegroup::ChangegroupWriter>()?;
    module.add_class::<expander::SegmentExpander>()?;
    module.add_class::<frames::Zstd>()?;
    module.add_class::<introduced::IntroducedObjects>()?;
    module.add_class::<object_store::ObjectStore>()?;
    module.add_class::<pack::PackBuilder>()?;
    module.add_class::<prover::Prover>()?;
    module.add_class::<reader::RecordReader>()?;
    module.add_class::<writer::SegmentWriter>()?;
    module.add_function(wrap_pyfunction!(bzr::page_references, module)?)
}
