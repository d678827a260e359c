//! The bounded queues whose drops are metrics. Holds none of them.

/// The queues whose drops are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Inputs of the engine.
    Input,
    /// Journal signals.
    Signal,
    /// Actions on the cluster.
    Action,
    /// Requests of methods and the control socket.
    Command,
    /// Entries for the host's journal.
    Log,
}

impl Queue {
    pub(super) const ALL: [Self; 5] = [
        Self::Input,
        Self::Signal,
        Self::Action,
        Self::Command,
        Self::Log,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Signal => "signal",
            Self::Action => "action",
            Self::Command => "command",
            Self::Log => "log",
        }
    }
}
