#include "teson/actor/proc_mesh.h"

#include <utility>

#include "teson/actor/mesh_state.h"
#include "teson/actor/remote_proc.h"

namespace teson::actor {

ProcMesh::ProcMesh(std::shared_ptr<detail::MeshState> state) : state_(std::move(state)) {}
ProcMesh::ProcMesh(ProcMesh&&) noexcept = default;
ProcMesh& ProcMesh::operator=(ProcMesh&& other) noexcept {
  if (this != &other) {
    if (state_) state_->stop();
    state_ = std::move(other.state_);
  }
  return *this;
}
ProcMesh::~ProcMesh() {
  if (state_) state_->stop();
}

const Region& ProcMesh::region() const {
  return state_->region();
}
pid_t ProcMesh::pid(std::size_t rank) const {
  return state_->proc(rank)->pid();
}
std::uint64_t ProcMesh::incarnation(std::size_t rank) const {
  return state_->proc(rank)->place().incarnation;
}
std::string ProcMesh::ticket(std::size_t rank) const {
  return state_->ticket(rank);
}
std::optional<ProcExit> ProcMesh::exit_of(std::size_t rank) const {
  return state_->proc(rank)->exit();
}
Result<void> ProcMesh::wait_attached(Instant deadline) const {
  return state_->wait_attached(deadline);
}
void ProcMesh::on_failure(std::function<void(const ProcExit&)> handler) {
  state_->on_failure(std::move(handler));
}
void ProcMesh::supervise(Supervision supervision) {
  state_->supervise(std::move(supervision));
}
Result<void> ProcMesh::kill(std::size_t rank, int signal) {
  return state_->proc(rank)->signal(signal);
}
Result<void> ProcMesh::replace(std::size_t rank) {
  return state_->replace(rank);
}
void ProcMesh::replace_after(std::size_t rank, Duration delay,
                             std::function<void(const Result<void>&)> done) {
  state_->replace_after(rank, delay, std::move(done));
}
void ProcMesh::stop() {
  state_->stop();
}

detail::Targets ProcView::spawn_all(std::uint64_t class_hash, std::uint64_t interface,
                                    std::string class_name, std::string name,
                                    std::string arguments) const {
  return state_->spawn({.class_hash = class_hash,
                        .interface = interface,
                        .class_name = std::move(class_name),
                        .name = std::move(name)},
                       std::move(arguments), region_);
}

}  // namespace teson::actor
