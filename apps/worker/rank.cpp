#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/worker/control_actor.h"
#include "apps/worker/fault_injector.h"
#include "apps/worker/reports.h"
#include "apps/worker/verbs.h"
#include "teson/actor/proc.h"
#include "teson/base/clock.h"
#include "teson/base/hash.h"
#include "teson/base/log.h"
#include "teson/checkpoint/async_writer.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/comm/host_transport.h"
#include "teson/job/config.h"
#include "teson/job/control.h"
#include "teson/job/run_folder.h"
#include "teson/quorum/member.h"
#include "teson/train/execution_class.h"
#include "teson/train/membership.h"
#include "teson/train/replica.h"
#include "teson/train/trainer.h"

namespace teson::apps {
namespace {

using Observer = actor::Actor<job::RunObserver>;

// Far beyond any lane: a peer that never comes is found otherwise.
constexpr Duration kPeersWaitMax = std::chrono::hours(24);
constexpr Duration kPeersStartMax = std::chrono::minutes(2);
constexpr Duration kConnectAgain = std::chrono::milliseconds(20);

// Everything one rank is made of, in the order it is built.
struct Rank {
  job::WorkerOrder order;
  job::RunPaths paths;
  job::Config config;
  std::string secret;
  SystemClock clock;
  std::uint64_t plan_hash = 0;
  std::uint64_t incarnation = 0;  ///< of the newest checkpoint
  Origin origin;
  Duration microbatch{};  ///< how long one took when it was tried
  std::unique_ptr<train::Replica> replica;
  SystemDisk disk;
  std::unique_ptr<CheckpointStore> store;
  std::unique_ptr<AsyncCheckpointWriter> writer;
  std::unique_ptr<comm::HostTransport> transport;
  std::unique_ptr<quorum::MemberClient> member;
  std::unique_ptr<train::Membership> membership;
};

Result<void> load_newest_checkpoint(Rank& rank, const Observer& observer) {
  if (const auto cleaned = rank.store->clean_stale(); !cleaned)
    log_warning("checkpoint", "{}", cleaned.error().message);
  TESON_TRY(const auto entries, rank.store->list());
  if (!entries.empty()) rank.incarnation = entries.front().id.incarnation;
  TESON_TRY(auto newest, rank.store->newest_complete());
  for (const auto& skipped : newest.skipped) {
    log_warning("checkpoint", "passed over '{}': {}", skipped.path.string(), skipped.reason);
    (void)observer.cast<&job::RunObserver::checkpoint_damaged>(
        job::DamagedCheckpoint{skipped.path.string(), skipped.reason});
  }
  if (!newest.checkpoint) return {};
  log_info("checkpoint", "resuming from '{}'", newest.checkpoint->path().string());
  TESON_TRY_VOID(rank.replica->load(*newest.checkpoint));
  rank.origin = {newest.checkpoint->path().string(), rank.replica->state().step};
  return {};
}

Result<void> build(Rank& rank, const Observer& observer) {
  rank.paths.dir = rank.order.run_dir;
  TESON_TRY(rank.config, job::load_config(rank.paths.config()));
  TESON_TRY(rank.secret, job::read_secret(rank.paths.secret()));
  TESON_TRY(auto address, net::Address::parse(rank.order.data_address));
  TESON_TRY(rank.transport, comm::HostTransport::listen({.address = std::move(address),
                                                         .job_id = rank.config.run.name,
                                                         .secret = rank.secret,
                                                         .instance = rank.order.instance}));
  TESON_TRY(rank.replica, train::Replica::create(rank.config, rank.order.prepared));
  const std::string class_text = train::execution_class(rank.config.train.threads);
  rank.plan_hash =
      hash64(class_text, hash64(rank.replica->corpus_fingerprint(), job::plan_hash(rank.config)));
  // H_0 says which weights the history began with: two ranks that drew other ones never train
  // together.
  auto& state = rank.replica->state();
  state.chain = hash64(std::as_bytes(state.arrays[0]), rank.plan_hash);
  rank.store = std::make_unique<CheckpointStore>(job::checkpoint_dir(rank.config), rank.disk);
  rank.writer = std::make_unique<AsyncCheckpointWriter>(
      *rank.store, static_cast<std::size_t>(rank.config.checkpoint.keep),
      [observer](const CheckpointOutcome& outcome) { report_checkpoint(observer, outcome); });
  TESON_TRY_VOID(load_newest_checkpoint(rank, observer));
  TESON_TRY(rank.microbatch, rank.replica->warm_up(rank.clock));
  return {};
}

void join_quorum(Rank& rank, net::Loop& loop, const net::Address& lighthouse) {
  const auto& state = rank.replica->state();
  quorum::MemberOptions options;
  options.lighthouse = lighthouse;
  options.job = rank.config.run.name;
  options.secret = rank.secret;
  options.instance = rank.order.instance;
  options.replica = rank.order.replica;
  options.data_address = rank.transport->address().to_string();
  options.plan_hash = rank.plan_hash;
  options.lanes_total = rank.config.batch.lanes;
  options.mode =
      rank.config.train.mode == job::Mode::elastic ? quorum::Mode::elastic : quorum::Mode::exact;
  options.has_state = true;
  options.step = state.step;
  options.chain = state.chain;
  options.incarnation = rank.incarnation;
  options.work = rank.microbatch;
  options.on_fence = [transport = rank.transport.get()](std::int64_t epoch) {
    transport->abort_below(static_cast<std::uint64_t>(epoch),
                           {ErrorKind::aborted, "a newer epoch is being formed"});
  };
  rank.member = quorum::MemberClient::start(loop, std::move(options));
  rank.membership = train::quorum_membership(*rank.member);
}

void join_fixed(Rank& rank) {
  quorum::StartOrder start;
  auto& record = start.record;
  record.epoch = 1;
  record.incarnation = 1;
  record.lanes_total = rank.config.batch.lanes;
  record.replicas_expected = rank.config.cluster.replicas;
  record.base_step = rank.replica->state().step;
  const auto weights =
      quorum::choose_weights(rank.config.batch.lanes, rank.config.cluster.replicas);
  for (std::size_t i = 0; i < rank.order.fixed_addresses.size(); ++i) {
    quorum::Member member;
    member.id = {rank.order.fixed_instances[i], static_cast<std::int32_t>(i), 0};
    member.data_address = rank.order.fixed_addresses[i];
    member.lanes = weights[i];
    record.members.push_back(std::move(member));
  }
  start.rank = rank.order.replica;
  rank.membership = train::fixed_membership(std::move(start));
}

// Without a lighthouse nobody says when the peers have started: they are tried until they have.
Result<std::unique_ptr<comm::Communicator>> connect_fixed(const Rank& rank,
                                                          const comm::GroupOptions& group) {
  const Instant deadline = rank.clock.now() + kPeersStartMax;
  while (true) {
    auto connected = rank.transport->connect(group);
    if (connected || connected.error().kind != ErrorKind::disconnected ||
        rank.clock.now() > deadline)
      return connected;
    std::this_thread::sleep_for(kConnectAgain);
  }
}

Result<std::unique_ptr<comm::Communicator>> connect(Rank& rank, const quorum::EpochRecord& record,
                                                    int own_rank) {
  comm::GroupOptions group;
  group.epoch = static_cast<std::uint64_t>(record.epoch);
  group.rank = own_rank;
  for (const auto& member : record.members) {
    TESON_TRY(auto address, net::Address::parse(member.data_address));
    group.addresses.push_back(std::move(address));
    group.instances.push_back(member.id.instance);
  }
  // A peer enters when its running lane is done, however long that takes; a dead one is seen at
  // once, a lost one is fenced.
  group.connect_timeout = kPeersWaitMax;
  if (!rank.member) return connect_fixed(rank, group);
  group.on_peer_lost = [member = rank.member.get(), epoch = record.epoch](int peer) {
    member->report_peer_lost(epoch, peer, "its data connection ended");
  };
  return rank.transport->connect(std::move(group));
}

Result<void> train(Rank& rank, actor::Proc& proc, ControlState& control) {
  const Observer observer = proc.actor(rank.order.observer);
  TESON_TRY_VOID(build(rank, observer));
  if (rank.order.lighthouse.empty()) {
    join_fixed(rank);
  } else {
    TESON_TRY(const auto lighthouse, net::Address::parse(rank.order.lighthouse));
    join_quorum(rank, proc.loop(), lighthouse);
  }
  TESON_TRY(auto plan, job::parse_faults(rank.order.faults));
  train::TrainerOptions options;
  options.replica = rank.order.replica;
  options.clock = &rank.clock;
  options.checkpoints = rank.writer.get();
  options.connect = [&rank](const quorum::EpochRecord& record, int own_rank) {
    return connect(rank, record, own_rank);
  };
  options.events = report_to(observer, rank.order.replica, rank.origin);
  options.inject =
      FaultInjector(std::move(plan), rank.paths.faults(), rank.order.replica, rank.clock);
  train::Trainer trainer(*rank.replica, *rank.membership, std::move(options));
  control.begin(trainer, rank.member.get(), rank.transport.get());
  Result<void> ended;
  try {
    ended = trainer.run();
  } catch (const std::exception& error) {
    ended = fail(ErrorKind::failed, fmt::format("exception: {}", error.what()));
  }
  control.end();  // before the trainer goes
  if (!ended && ended.error().kind == ErrorKind::aborted && control.stopping()) return {};
  return ended;
}

}  // namespace

int run_rank(const std::vector<std::string>&) {
  log_start(fmt::format("worker {}", ::getpid()),
            std::getenv("TESON_VERBOSE") ? LogLevel::info : LogLevel::warning);
  auto proc = actor::Proc::attach();
  if (!proc) {
    log_error("worker", "{}", proc.error().message);
    return 1;
  }
  const auto control = std::make_shared<ControlState>();
  (*proc)->serve<job::WorkerControl>(
      [control](const actor::ProcContext&) { return control_actor(control); });
  (*proc)->on_stop([control](actor::StopReason) { control->stop(); });
  (*proc)->start();
  auto order = control->wait_order();
  if (!order) return 0;

  Result<void> ended;
  Rank rank;
  rank.order = std::move(*order);
  try {
    ended = train(rank, **proc, *control);
  } catch (const std::exception& error) {
    ended = fail(ErrorKind::failed, fmt::format("exception: {}", error.what()));
  }
  control->end();
  if (!ended) {
    log_error("worker", "{}", ended.error().message);
    // The others go on at once: this is as good as a proof of death.
    if (rank.member)
      rank.member->leave(false, ended.error().message, std::chrono::milliseconds(200));
    const auto observer = (*proc)->actor(rank.order.observer).within(std::chrono::seconds(1));
    (void)observer.call<&job::RunObserver::failed>(rank.order.replica, ended.error()).wait();
    // Nothing of a failed rank is worth an orderly end.
    std::_Exit(1);
  }
  // Fixed membership ends by itself; leave when asked, so that reports are not cut off.
  (*proc)->wait();
  return 0;
}

}  // namespace teson::apps
