#include "teson/train/state_transfer.h"

#include <algorithm>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/base/hash.h"

namespace teson::train {
namespace {

// Shares begin at multiples of this many floats.
constexpr std::size_t kShareAlignment = 1024;
constexpr std::uint32_t kHeaderTag = 1;
constexpr std::uint32_t kArrayTag = 2;

struct Header {
  std::int64_t step;
  std::uint64_t chain;
  std::int64_t tokens;
  std::int64_t updates;
  std::int64_t skipped_in_a_row;
  std::uint64_t digest;  // of the donor's shares of all arrays, one after the other
};

std::span<float> share_of(std::span<float> array, std::size_t donor, std::size_t donors) {
  const std::size_t blocks = (array.size() + kShareAlignment - 1) / kShareAlignment;
  const std::size_t first = std::min(array.size(), blocks * donor / donors * kShareAlignment);
  const std::size_t last = std::min(array.size(), blocks * (donor + 1) / donors * kShareAlignment);
  return array.subspan(first, last - first);
}

std::uint64_t digest_of_shares(const TrainingState& state, std::size_t donor, std::size_t donors) {
  std::uint64_t digest = 0;
  for (const auto& array : state.arrays)
    digest = hash64(std::as_bytes(share_of(array, donor, donors)), digest);
  return digest;
}

Result<void> wait_all(const std::vector<comm::Work>& works) {
  Result<void> outcome;
  for (const auto& work : works) {
    if (auto result = work.wait(); !result && outcome) outcome = std::move(result);
  }
  return outcome;
}

Result<void> send_shares(comm::Communicator& communicator, std::size_t donor, std::size_t donors,
                         const std::vector<int>& learners, const TrainingState& state) {
  const Header header{state.step,
                      state.chain,
                      state.tokens,
                      state.updates,
                      state.skipped_in_a_row,
                      digest_of_shares(state, donor, donors)};
  std::vector<comm::Work> works;
  for (const int learner : learners) {
    works.push_back(communicator.send(std::as_bytes(std::span(&header, 1)), learner, kHeaderTag));
    for (const auto& array : state.arrays) {
      works.push_back(
          communicator.send(std::as_bytes(share_of(array, donor, donors)), learner, kArrayTag));
    }
  }
  return wait_all(works);
}

Result<void> receive_shares(comm::Communicator& communicator, const std::vector<int>& donors,
                            TrainingState& state) {
  std::vector<Header> headers(donors.size());
  std::vector<comm::Work> works;
  for (std::size_t donor = 0; donor < donors.size(); ++donor) {
    works.push_back(communicator.recv(std::as_writable_bytes(std::span(&headers[donor], 1)),
                                      donors[donor], kHeaderTag));
    for (const auto& array : state.arrays) {
      works.push_back(communicator.recv(
          std::as_writable_bytes(share_of(array, donor, donors.size())), donors[donor], kArrayTag));
    }
  }
  TESON_TRY_VOID(wait_all(works));
  for (std::size_t donor = 0; donor < donors.size(); ++donor) {
    if (headers[donor].step != headers[0].step || headers[donor].chain != headers[0].chain) {
      return fail(ErrorKind::failed,
                  fmt::format("donors differ: rank {} is at step {} (chain {:016x}), rank {} at "
                              "step {} (chain {:016x})",
                              donors[0], headers[0].step, headers[0].chain, donors[donor],
                              headers[donor].step, headers[donor].chain));
    }
    if (digest_of_shares(state, donor, donors.size()) != headers[donor].digest) {
      return fail(ErrorKind::failed,
                  fmt::format("the state from rank {} was damaged on the way", donors[donor]));
    }
  }
  state.step = headers[0].step;
  state.chain = headers[0].chain;
  state.tokens = headers[0].tokens;
  state.updates = headers[0].updates;
  state.skipped_in_a_row = headers[0].skipped_in_a_row;
  return {};
}

}  // namespace

Result<void> transfer_state(comm::Communicator& communicator, const std::vector<int>& donors,
                            const std::vector<int>& learners, TrainingState& state) {
  TESON_CHECK(!donors.empty());
  const auto donor = std::find(donors.begin(), donors.end(), communicator.rank());
  if (donor != donors.end()) {
    return send_shares(communicator, static_cast<std::size_t>(donor - donors.begin()),
                       donors.size(), learners, state);
  }
  if (std::find(learners.begin(), learners.end(), communicator.rank()) == learners.end()) return {};
  return receive_shares(communicator, donors, state);
}

}  // namespace teson::train
