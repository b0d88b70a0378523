#include "teson/train/membership.h"

#include <chrono>
#include <optional>
#include <utility>

#include "teson/quorum/member.h"

namespace teson::train {
namespace {

class QuorumMembership final : public Membership {
 public:
  explicit QuorumMembership(quorum::MemberClient& client) : client_(client) {}

  Result<quorum::StartOrder> wait_start() override {
    // Ended by an order, a refusal, or the close that the worker's control actor and its parent's
    // death bring about.
    while (true) {
      auto order = client_.wait_start(std::chrono::seconds(60));
      if (order || order.error().kind != ErrorKind::timed_out) return order;
    }
  }
  bool fenced() const override { return client_.fenced(); }
  bool votes() const override { return true; }
  Result<void> set_level(std::int64_t epoch, std::int64_t step, std::uint64_t chain) override {
    return client_.set_level(epoch, step, chain);
  }
  Result<void> begin_step(std::int64_t epoch, std::int64_t step) override {
    return client_.begin_step(epoch, step);
  }
  Result<void> hold_lane(std::int64_t epoch, std::int32_t lane) override {
    return client_.hold_lane(epoch, lane);
  }
  Result<void> hold_final(std::int64_t epoch, std::size_t tile) override {
    return client_.hold_final(epoch, tile);
  }
  Result<void> prepare(const quorum::Vote& vote) override { return client_.prepare(vote); }
  Result<void> commit(std::int64_t epoch, const quorum::Outcome& outcome) override {
    return client_.commit(epoch, outcome);
  }
  void set_phase(quorum::Phase phase) override { client_.set_phase(phase); }
  void add_progress() override { client_.add_progress(); }
  void report_peer_lost(std::int64_t epoch, int rank, const std::string& what) override {
    client_.report_peer_lost(epoch, rank, what);
  }
  void report_mismatch(std::int64_t epoch, std::int64_t step,
                       const std::vector<int>& ranks) override {
    client_.report_mismatch(epoch, step, ranks);
  }

 private:
  quorum::MemberClient& client_;
};

class FixedMembership final : public Membership {
 public:
  explicit FixedMembership(quorum::StartOrder order) : order_(std::move(order)) {}

  Result<quorum::StartOrder> wait_start() override {
    if (!order_)
      return fail(ErrorKind::failed,
                  "a peer was lost, and with cluster.fault_tolerance = false the run cannot go on");
    return std::move(*std::exchange(order_, std::nullopt));
  }
  bool fenced() const override { return false; }
  bool votes() const override { return false; }
  Result<void> set_level(std::int64_t, std::int64_t, std::uint64_t) override { return {}; }
  Result<void> begin_step(std::int64_t, std::int64_t) override { return {}; }
  Result<void> hold_lane(std::int64_t, std::int32_t) override { return {}; }
  Result<void> hold_final(std::int64_t, std::size_t) override { return {}; }
  Result<void> prepare(const quorum::Vote&) override { return {}; }
  Result<void> commit(std::int64_t, const quorum::Outcome&) override { return {}; }
  void set_phase(quorum::Phase) override {}
  void add_progress() override {}
  void report_peer_lost(std::int64_t, int, const std::string&) override {}
  void report_mismatch(std::int64_t, std::int64_t, const std::vector<int>&) override {}

 private:
  std::optional<quorum::StartOrder> order_;
};

}  // namespace

std::unique_ptr<Membership> quorum_membership(quorum::MemberClient& client) {
  return std::make_unique<QuorumMembership>(client);
}

std::unique_ptr<Membership> fixed_membership(quorum::StartOrder order) {
  return std::make_unique<FixedMembership>(std::move(order));
}

}  // namespace teson::train
