//! A SQLite VFS in memory whose disk can be cut at any operation, for crash tests and simulations.
//!
//! Owns: the model of a disk (what is durable, and what a crash may keep of the rest), and the VFS that puts SQLite on it.
//!
//! Must not know: what is stored. It sees files, bytes and syncs; the one thing it knows of SQLite's formats is where a log holds
//! numbers that SQLite drew.
//!
//! Invariants: what was synced survives every crash, unless the disk was told to lie; equal runs with equal seeds have equal
//! histories; nothing that SQLite holds an address of is freed under it.
//!
//! Start at [`FaultVfs`]. A test opens its connections through [`FaultVfs::name`], runs a workload once to learn how many operations
//! it costs ([`FaultVfs::ops`]), then runs it again for every operation with [`FaultVfs::arm`], each time on a [`FaultVfs::fork`] of
//! the disk it starts from. From the armed operation on the process counts as dead: everything fails until
//! [`FaultVfs::crash_and_recover`] decides what the disk has kept. What a crash may keep is the model in `disk`, which is safe
//! code; the C glue is in `glue`.
//!
//! It is not a model of several processes: all connections share one heap and one lock.

mod crash;
mod disk;
mod glue;
mod image;
mod inode;
mod random;
mod vfs;

pub use crash::Crash;
pub use vfs::FaultVfs;
