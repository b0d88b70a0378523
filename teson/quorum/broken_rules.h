#pragma once

namespace teson::quorum {

/// Switches that break the protocol, for the test that shows that the model check can see it. All
/// off, always.
struct BrokenRules {
  bool majority_commits =
      false;  ///< a verdict commits what most voted for; ranks commit on a majority of votes
  bool no_insider_needed = false;      ///< continuity dropped: anybody with a state may carry on
  bool start_before_durable = false;   ///< START is sent without waiting for the record
  bool noise_after_promise = false;    ///< ranks vote and commit below their promise
  bool status_without_record = false;  ///< the record in a FENCE is not applied before the answer
};

}  // namespace teson::quorum
