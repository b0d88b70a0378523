#include "teson/actor/mesh_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/actor/behaviour.h"
#include "teson/base/check.h"
#include "teson/base/clock.h"

namespace teson::actor::detail {

namespace {

/// How long an owner may take to name a handler before a failure counts as unhandled.
constexpr Duration handler_wait = std::chrono::seconds(1);

}  // namespace

MeshState::MeshState(Runtime& runtime, Shape shape, ProcOptions options, Placement placement)
    : runtime_(runtime),
      shape_(std::move(shape)),
      options_(std::move(options)),
      placement_(std::move(placement)) {
  ++runtime_.meshes;
}

MeshState::~MeshState() {
  TESON_CHECK(stopped_);
}

Result<ProcMesh> MeshState::make(Runtime& runtime, const Shape& shape, ProcOptions options,
                                 Placement placement) {
  TESON_TRY_VOID(shape.validate());
  auto state =
      std::make_shared<MeshState>(runtime, shape, std::move(options), std::move(placement));
  runtime.mesh_list.add(state);
  // From here on the mesh ends what was started.
  ProcMesh mesh(state);
  TESON_TRY_VOID(state->start_all());
  return mesh;
}

std::optional<MeshState::Members> MeshState::members() const {
  std::lock_guard lock(mutex_);
  if (stopped_) return std::nullopt;
  return Members{options_.name, shape_, procs_};
}

std::string MeshState::ticket(std::size_t rank) const {
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(rank);
  return found == tickets_.end() ? std::string() : found->second;
}

Result<std::shared_ptr<HostLink>> MeshState::host_for(std::size_t rank) const {
  std::vector<std::shared_ptr<HostLink>> hosts;
  for (const auto& host : placement_.hosts)
    hosts.push_back(runtime_.hosts.latest(host));
  const auto& own = hosts[rank * hosts.size() / shape_.ranks()];
  const auto why = own->gone();
  if (!why) return own;
  std::map<const HostLink*, std::size_t> load;
  {
    std::lock_guard lock(mutex_);
    for (const auto& proc : procs_)
      ++load[proc->host_link().get()];
  }
  std::shared_ptr<HostLink> least;
  for (const auto& host : hosts) {
    if (!host->gone() && (!least || load[host.get()] < load[least.get()])) least = host;
  }
  if (!least) return Failure(*why);
  return least;
}

Result<void> MeshState::start_all() {
  for (std::size_t rank = 0; rank < shape_.ranks(); ++rank) {
    TESON_TRY(auto proc, start(rank, 0));
    std::lock_guard lock(mutex_);
    procs_.push_back(std::move(proc));
  }
  return {};
}

Result<std::shared_ptr<RemoteProc>> MeshState::start(std::size_t rank, std::uint64_t incarnation) {
  Welcome welcome{.wire = wire_hash(),
                  .proc = runtime_.next_proc++,
                  .rank = rank,
                  .incarnation = incarnation,
                  .dimensions = shape_.dimensions,
                  .mesh = options_.name,
                  .orphan_grace_ns = static_cast<std::uint64_t>(options_.orphan_grace.count()),
                  .heartbeat_ns = static_cast<std::uint64_t>(options_.heartbeat.count())};
  auto proc = std::make_shared<RemoteProc>(runtime_, options_, ProcPlace{rank, incarnation},
                                           std::move(welcome));
  const std::weak_ptr<MeshState> weak = weak_from_this();
  RemoteProc::Hooks hooks{.changed =
                              [weak] {
                                if (const auto self = weak.lock()) self->wake();
                              },
                          .ended =
                              [weak](const ProcExit& exit) {
                                if (const auto self = weak.lock()) self->ended(exit);
                              }};
  if (placement_.guests) {
    TESON_TRY(auto ticket, proc->await(std::move(hooks)));
    std::lock_guard lock(mutex_);
    tickets_[rank] = std::move(ticket);
  } else if (placement_.hosts.empty()) {
    TESON_TRY_VOID(proc->start_child(std::move(hooks)));
  } else {
    const auto host = host_for(rank);
    if (!host)
      return fail(host.error().in(fmt::format("rank {} of mesh '{}'", rank, options_.name)));
    TESON_TRY_VOID(proc->start_on(*host, std::move(hooks)));
  }
  return proc;
}

void MeshState::wake() const {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void MeshState::ended(const ProcExit& exit) {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
  if (exit.expected) return;
  if (on_failure_) {
    tell(exit);
  } else {
    untold_.push_back(exit);
    later_locked(shape_.ranks(), handler_wait, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->give_up_untold();
    });
  }
}

void MeshState::give_up_untold() {
  std::string chain;
  {
    std::lock_guard lock(mutex_);
    for (const auto& exit : untold_)
      chain += (chain.empty() ? "" : "\n") + exit.describe(options_.name);
    untold_.clear();
  }
  if (!chain.empty()) unhandled(chain);
}

std::uint64_t MeshState::incarnation(std::size_t rank) const {
  return proc(rank)->place().incarnation;
}

void MeshState::end(std::size_t rank) {
  proc(rank)->end_now();
}

void MeshState::unhandled(const std::string& chain) {
  runtime_.unhandled(chain);
}

void MeshState::supervise(Supervision supervision) {
  // It lives as long as the handler, which stop() drops before this goes.
  Supervisor::Mesh& mesh = *this;
  auto supervisor = std::make_shared<Supervisor>(mesh, std::move(supervision), runtime_.clock);
  on_failure([supervisor](const ProcExit& exit) { supervisor->ended(exit); });
}

void MeshState::tell(const ProcExit& exit) {
  runtime_.supervision.post([weak = weak_from_this(), exit] {
    const auto self = weak.lock();
    if (!self) return;
    std::function<void(const ProcExit&)> handler;
    {
      std::lock_guard lock(self->mutex_);
      handler = self->on_failure_;
    }
    if (!handler) return;
    // An owner that cannot handle a failure fails itself, with the whole chain as its last words.
    const auto handled = guarded([&] { handler(exit); });
    if (!handled) {
      self->unhandled(exit.describe(self->options_.name) +
                      "\nand the handler of this failure failed: " + handled.error().describe());
    }
  });
}

void MeshState::on_failure(std::function<void(const ProcExit&)> handler) {
  std::lock_guard lock(mutex_);
  on_failure_ = std::move(handler);
  if (!on_failure_) return;
  for (const auto& exit : untold_)
    tell(exit);
  untold_.clear();
}

std::shared_ptr<RemoteProc> MeshState::proc(std::size_t rank) const {
  std::lock_guard lock(mutex_);
  TESON_CHECK(rank < procs_.size(), rank, procs_.size());
  return procs_[rank];
}

void MeshState::send_recipe(RemoteProc& proc, const Recipe& recipe) {
  SpawnRequest request = recipe.request;
  request.arguments = std::as_bytes(std::span(recipe.arguments));
  // A process that is gone gets it when it is replaced.
  (void)proc.send(Kind::spawn, net::Payload(net::encode(request)));
}

Targets MeshState::spawn(SpawnRequest request, std::string arguments, Region region) {
  std::lock_guard lock(mutex_);
  Targets targets{.mesh = shared_from_this(),
                  .region = std::move(region),
                  .stopped = std::make_shared<std::set<std::size_t>>()};
  if (stopped_) return targets;
  targets.actor = request.actor = runtime_.node.next_actor_id();
  targets.deadline = runtime_.options.call_deadline;
  request.region = targets.region.layout();
  recipes_.push_back({std::move(request), std::move(arguments), targets.region, targets.stopped});
  // Under the lock, so that nobody can call the actor before it was asked for.
  for (std::size_t i = 0; i < targets.region.ranks(); ++i)
    send_recipe(*procs_[targets.region.rank_at(i)], recipes_.back());
  return targets;
}

Result<void> MeshState::wait_attached(Instant deadline) const {
  std::unique_lock lock(mutex_);
  std::optional<Error> gone;
  std::size_t attached = 0;
  const bool good = changed_.wait_until(lock, deadline, [&] {
    attached = 0;
    for (const auto& proc : procs_) {
      if ((gone = proc->gone())) return true;
      attached += proc->attached() ? 1 : 0;
    }
    return attached == procs_.size();
  });
  if (gone) return Failure(*gone);
  if (!good) {
    return fail(
        ErrorKind::timed_out,
        fmt::format(
            "mesh '{}': {} of {} processes have attached; the others are slow to start or do "
            "not call Proc::attach",
            options_.name, attached, procs_.size()));
  }
  return {};
}

Result<void> MeshState::replace(std::size_t rank) {
  std::lock_guard one_at_a_time(replace_mutex_);
  const auto old = proc(rank);
  const auto aborted = [&] {
    return fail(ErrorKind::aborted, fmt::format("mesh '{}' has been stopped", options_.name));
  };
  {
    std::unique_lock lock(mutex_);
    if (stopped_) return aborted();
    if (!old->exit()) {
      old->end_now();
      changed_.wait(lock, [&] { return old->exit().has_value(); });
    }
  }
  old->release();
  TESON_TRY(auto started, start(rank, old->place().incarnation + 1));
  std::lock_guard lock(mutex_);
  procs_[rank] = started;
  for (const auto& recipe : recipes_) {
    if (recipe.region.contains(rank) && !recipe.stopped->contains(rank))
      send_recipe(*started, recipe);
  }
  return {};
}

void MeshState::replace_after(std::size_t rank, Duration delay,
                              std::function<void(const Result<void>&)> done) {
  TESON_CHECK(rank < size(), rank, size());
  later(rank, delay, [this, rank, done = std::move(done)] { replace_dead(rank, done); });
}

void MeshState::later(std::size_t key, Duration delay, std::function<void()> function) {
  std::lock_guard lock(mutex_);
  later_locked(key, delay, std::move(function));
}

void MeshState::later_locked(std::size_t key, Duration delay, std::function<void()> function) {
  if (stopped_) return;
  delayed_[key] =
      runtime_.loop.after(delay, [weak = weak_from_this(), function = std::move(function)] {
        const auto self = weak.lock();
        if (!self) return;
        self->runtime_.supervision.post([weak, function] {
          const auto mesh = weak.lock();
          if (!mesh) return;
          if (const auto done = guarded(function); !done)
            mesh->unhandled("mesh '" + mesh->name() + "': " + done.error().describe());
        });
      });
}

void MeshState::replace_dead(std::size_t rank,
                             const std::function<void(const Result<void>&)>& done) {
  if (!proc(rank)->exit()) return;
  const auto result = replace(rank);
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
  }
  if (done) done(result);
}

void MeshState::stop() {
  std::map<std::size_t, net::Timer> delayed;
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(stopped_, true)) {
      // Somebody else is at it.
      changed_.wait(lock, [this] { return all_ended_; });
      lock.unlock();
      runtime_.supervision.run([] {});
      return;
    }
    delayed.swap(delayed_);
  }
  // A replacement that was on its way is in procs_ afterwards; none will follow.
  {
    std::lock_guard wait_for_replace(replace_mutex_);
  }
  std::vector<std::shared_ptr<RemoteProc>> procs;
  {
    std::lock_guard lock(mutex_);
    procs = procs_;
  }
  for (const auto& proc : procs)
    proc->stop();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::all_of(procs.begin(), procs.end(),
                         [](const auto& proc) { return proc->exit().has_value(); });
    });
  }
  for (const auto& proc : procs)
    proc->release();
  on_failure({});
  --runtime_.meshes;
  {
    std::lock_guard lock(mutex_);
    all_ended_ = true;
  }
  changed_.notify_all();
  // A handler that runs now may use the mesh, which may go after this.
  runtime_.supervision.run([] {});
}

}  // namespace teson::actor::detail
