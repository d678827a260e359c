//! Hold reasons in words, for a person on shift.

use super::gate::HoldReason;

/// What a reason means.
pub fn explain(reason: HoldReason) -> &'static str {
    match reason {
        HoldReason::ObserveMode => "mode is observe: this is what heal would do",
        HoldReason::OutsideWindow => "no heal window is open",
        HoldReason::Hold => "somebody asked to hold",
        HoldReason::Grace => "it has not stood for long enough",
        HoldReason::NotInScope => "the settings leave it out of scope",
        HoldReason::NotManaged => {
            "it is not the slice controller's own, so nobody would write it anew"
        }
        HoldReason::OptedOut => "it carries the annotation slice-healer.io/ignore",
        HoldReason::Finalizer => "a finalizer holds it",
        HoldReason::Deleting => "it is being deleted",
        HoldReason::BudgetService => "this Service was healed as often as an hour allows",
        HoldReason::BudgetNamespace => "this namespace was healed as often as an hour allows",
        HoldReason::BudgetNode => "this module healed as often as an hour allows",
        HoldReason::CoolDown => "its last heal is too fresh",
        HoldReason::BreakerOpen => "three heals in a row could not be proved",
        HoldReason::CanaryFailed => "the slice controller has not proved that it works",
        HoldReason::Reconnected => "the API server has only just come back",
        HoldReason::NotSynced => "the view of the cluster is not complete",
        HoldReason::LostEndpoints => "a delete would take away more than it mends",
        HoldReason::LoadBalancer => {
            "heal.load_balancers = skip: a refresh makes the cloud's controller act"
        }
        HoldReason::Lease => "another slice-healer is healing in this cluster",
        HoldReason::Wedged => "the controller cannot sync this Service",
        HoldReason::MissingPermission => "the API server refuses the write",
    }
}
