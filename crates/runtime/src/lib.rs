//! Process scaffolding shared by every binary.
