#include "teson/comm/engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/core.h>

#include "teson/base/check.h"

namespace teson::comm {
namespace {

/// How long a destroyed communicator tries to end a frame on its way, so that its peer does not
/// take it for dead.
constexpr Duration farewell_time_max = std::chrono::milliseconds(20);
constexpr int farewell_poll_ms = 2;
/// Turns of receiving what a peer had sent before it went; its buffer holds less.
constexpr int last_turns_max = 64;

}  // namespace

Engine::Engine(EngineOptions options, std::shared_ptr<CommandQueue> queue)
    : options_(std::move(options)),
      queue_(std::move(queue)),
      readable_(options_.sockets.size()),
      hung_up_(options_.sockets.size()),
      losses_(options_.sockets.size()),
      messages_(static_cast<int>(options_.sockets.size()), options_.early_message_bytes_max) {
  for (std::size_t rank = 0; rank < options_.sockets.size(); ++rank) {
    auto& socket = options_.sockets[rank];
    streams_.push_back(socket ? std::make_unique<PeerStream>(std::move(socket),
                                                             static_cast<int>(rank), options_.epoch)
                              : nullptr);
  }
}

void Engine::run() {
  while (true) {
    take_commands(std::exchange(woken_, false));
    if (closed_) break;
    const bool more = progress();
    wait(more ? 0 : -1);
  }
  say_farewell();
}

void Engine::say_farewell() {
  end({ErrorKind::aborted, "the communicator was destroyed"}, -1);
  const SystemClock clock;
  const Instant deadline = clock.now() + farewell_time_max;
  const auto wants_to_send = [](const auto& stream) { return stream && stream->wants_to_send(); };
  while (true) {
    progress();
    if (std::ranges::none_of(streams_, wants_to_send) || clock.now() >= deadline) return;
    wait(farewell_poll_ms);
  }
}

void Engine::take_commands(bool woken) {
  CommandQueue::Taken taken = queue_->take(woken);
  closed_ = taken.closed;
  if (taken.abort) end(*taken.abort, -1);
  for (Command& command : taken.commands)
    begin(std::move(command));
}

void Engine::begin(Command command) {
  if (ended_) {
    command.work->finish(fail(end_error_));
    return;
  }
  if (command.kind == Command::Kind::collective) {
    waiting_.push_back({std::move(command.operation), std::move(command.work)});
    return;
  }
  begin_message(command);
  new_loss_ = true;  // It may need a rank that is already lost.
}

void Engine::begin_message(Command& command) {
  if (command.kind == Command::Kind::receive) {
    const auto posted = messages_.post(command.peer, {command.tag, command.target, command.work});
    if (posted) return;
    command.work->finish(posted);
    end(posted.error(), -1);
    return;
  }
  OutgoingMessage& message = outgoing_.emplace_back();
  message.chunks_left = chunks_of(command.source.size());
  message.peer = command.peer;
  message.work = std::move(command.work);
  for (std::uint64_t chunk = 0; chunk < chunks_of(command.source.size()); ++chunk) {
    const auto begin = static_cast<std::size_t>(chunk * chunk_bytes);
    const std::size_t bytes = std::min<std::size_t>(chunk_bytes, command.source.size() - begin);
    const bool last = begin + bytes == command.source.size();
    push(command.peer, {.kind = FrameKind::message,
                        .flags = last ? MessageBox::last_chunk : std::uint16_t{0},
                        .sequence = sequence_of(command.tag, chunk),
                        .payload = command.source.subspan(begin, bytes),
                        .listener = &message});
  }
}

bool Engine::progress() {
  const bool ended_before = ended_;
  const std::uint64_t received_before = received_;
  start_next();
  receive_all();
  step();
  send_all();
  check_losses();
  const std::size_t before = waiting_.size();
  finish_done();
  const bool next = waiting_.size() < before && !waiting_.empty();
  const bool just_ended = ended_ && !ended_before;
  // A frame that found no place may have one now that others were received.
  const bool retry =
      received_ != received_before && std::ranges::any_of(streams_, [](const auto& stream) {
        return stream && stream->open() && stream->paused();
      });
  return next || just_ended || retry || (started_ && waiting_.front().operation->has_steps());
}

void Engine::start_next() {
  if (started_ || waiting_.empty()) return;
  started_ = true;
  new_loss_ = true;
  if (const auto begun = waiting_.front().operation->start(number_, *this); !begun)
    end(begun.error(), -1);
}

void Engine::receive_all() {
  for (const auto& stream : streams_) {
    if (!stream || !stream->open()) continue;
    const bool readable =
        std::exchange(readable_[static_cast<std::size_t>(stream->rank())], 0) != 0;
    // A paused frame may have found its place by what happened since.
    if (readable || stream->paused()) receive(*stream);
  }
}

void Engine::receive(PeerStream& stream) {
  // After the end the flag stays set, and what comes is only dropped.
  static const std::atomic<bool> never = false;
  const auto result = stream.receive(*this, ended_ ? never : queue_->interrupted());
  if (!result) stream_failed(stream, result.error());
}

void Engine::send_all() {
  for (const auto& stream : streams_) {
    if (!stream || !stream->can_send()) continue;
    const auto result = stream->send();
    if (result) continue;
    // What the peer said before it went says more than the failed send: whether it left in good
    // order.
    for (int turn = 0; turn < last_turns_max && stream->open() && !stream->paused(); ++turn)
      receive(*stream);
    if (stream->open()) lose(*stream, result.error());
  }
}

void Engine::step() {
  if (!started_ || !waiting_.front().operation->has_steps()) return;
  if (const auto stepped = waiting_.front().operation->step(); !stepped && !queue_->interrupted())
    end(stepped.error(), -1);
}

void Engine::finish_done() {
  std::erase_if(outgoing_, [](OutgoingMessage& message) {
    if (message.chunks_left > 0) return false;
    message.work->finish({});
    return true;
  });
  if (!started_ || !waiting_.front().operation->done()) return;
  const auto work = std::move(waiting_.front().work);
  waiting_.pop_front();
  started_ = false;
  ++number_;
  work->finish({});
}

void Engine::stream_failed(PeerStream& stream, const Error& error) {
  if (error.kind == ErrorKind::disconnected) return lose(stream, error);
  if (error.kind == ErrorKind::aborted) return;  // The abort itself follows by the queue.
  end(error.in(fmt::format("rank {} ({})", stream.rank(), address_of(stream.rank()))), -1);
  stream.close();
}

void Engine::lose(PeerStream& stream, const Error& error) {
  const bool left = stream.peer_left();
  auto& loss = losses_[static_cast<std::size_t>(stream.rank())];
  if (loss) return stream.close();
  loss = Loss{left, stream.peer_blamed(), error.message};
  new_loss_ = true;
  // One that left stays connected until it has heard that we have nothing more for it, or it would
  // take us for dead.
  if (left) {
    stream.leave(-1);
  } else {
    stream.close();
  }
  if (!left && options_.on_peer_lost && !queue_->aborted()) options_.on_peer_lost(stream.rank());
}

bool Engine::needs(int rank) const {
  return (started_ && waiting_.front().operation->needs(rank)) || messages_.needs(rank) ||
         std::ranges::any_of(outgoing_, [rank](const OutgoingMessage& m) {
           return m.peer == rank && m.chunks_left > 0;
         });
}

bool Engine::stands_still(const PeerStream& stream) const {
  const net::FrameHeader* const header = stream.open() ? stream.paused_header() : nullptr;
  if (header == nullptr) return false;
  // A frame of the running collective finds its place in time.
  return header->kind == static_cast<std::uint16_t>(FrameKind::message) || !started_ ||
         operation_of(header->sequence) != number_;
}

void Engine::check_losses() {
  if (!std::exchange(new_loss_, false) || ended_) return;
  std::optional<int> culprit;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool stuck = hung_up_[i] != 0 && stands_still(*streams_[i]);
    if ((!losses_[i] && !stuck) || !needs(rank)) continue;
    // What a dead peer sent cannot be reached behind a frame that has no place.
    if (!losses_[i]) losses_[i] = Loss{false, -1, "it closed the connection"};
    // One that died explains more than one that left because of it.
    if (!culprit || (losses_[static_cast<std::size_t>(*culprit)]->left && !losses_[i]->left))
      culprit = rank;
  }
  if (!culprit) return;
  const Loss& loss = *losses_[static_cast<std::size_t>(*culprit)];
  end(loss_error(*culprit), loss.left && loss.blamed >= 0 ? loss.blamed : *culprit);
}

std::string Engine::address_of(int rank) const {
  return options_.addresses[static_cast<std::size_t>(rank)].to_string();
}

Error Engine::loss_error(int rank) const {
  const Loss& loss = *losses_[static_cast<std::size_t>(rank)];
  const std::string address = address_of(rank);
  if (loss.left && loss.blamed >= 0) {
    return {ErrorKind::disconnected,
            fmt::format("rank {} is gone: rank {} ({}) left epoch {} because of it", loss.blamed,
                        rank, address, options_.epoch)};
  }
  return {ErrorKind::disconnected, fmt::format("rank {} ({}) is gone in epoch {}: {}", rank,
                                               address, options_.epoch, loss.reason)};
}

void Engine::end(const Error& error, int blamed) {
  if (std::exchange(ended_, true)) return;
  end_error_ = error;
  readable_.assign(readable_.size(), 1);  // Frames that found no place are dropped from now on.
  auto late = queue_->end(error);
  // Streams first: after this no memory of a caller is in use, so their waits may end.
  for (const auto& stream : streams_) {
    if (stream && stream->open()) stream->leave(blamed);
  }
  messages_.fail_all(error);
  for (OutgoingMessage& message : outgoing_)
    message.work->finish(fail(error));
  outgoing_.clear();
  for (Waiting& waiting : waiting_)
    waiting.work->finish(fail(error));
  waiting_.clear();
  started_ = false;
  for (Command& command : late)
    command.work->finish(fail(error));
}

Result<std::optional<std::span<std::byte>>> Engine::place(int rank,
                                                          const net::FrameHeader& header) {
  if (header.kind == static_cast<std::uint16_t>(FrameKind::message))
    return messages_.place(rank, header);
  const std::uint64_t number = operation_of(header.sequence);
  const bool known = header.kind >= static_cast<std::uint16_t>(FrameKind::exchange) &&
                     header.kind <= static_cast<std::uint16_t>(FrameKind::final);
  if (!known || number < number_) {
    return fail(ErrorKind::invalid,
                fmt::format("a frame of kind {} for operation {}, expected operation {} or later",
                            header.kind, number, number_));
  }
  if (started_ && number > number_ && waiting_.front().operation->receives_from(rank)) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "a frame of operation {} before the last one of operation {}: all ranks must start "
            "the same operations in the same order",
            number, number_));
  }
  // The peer is ahead of us: its frame waits until we start the same operation.
  if (number > number_ || !started_) return std::nullopt;
  return waiting_.front().operation->place(rank, header);
}

Result<void> Engine::received(int rank, const net::FrameHeader& header) {
  ++received_;
  if (header.kind == static_cast<std::uint16_t>(FrameKind::message))
    return messages_.received(rank, header);
  TESON_CHECK(started_ && !waiting_.empty(), rank);
  return waiting_.front().operation->received(rank, header);
}

void Engine::wait(int timeout_ms) {
  // Once closed there are no more commands, and the descriptor stays readable.
  polled_.assign(1, {closed_ ? -1 : queue_->fd(), POLLIN, 0});
  polled_rank_.assign(1, -1);
  for (const auto& stream : streams_) {
    if (!stream || !stream->open()) continue;
    // A paused stream would be readable all the time: only its end is looked for, once.
    const bool hung_up = hung_up_[static_cast<std::size_t>(stream->rank())] != 0;
    const int incoming = !stream->paused() ? POLLIN : hung_up ? 0 : POLLRDHUP;
    const short events = static_cast<short>(incoming | (stream->wants_to_send() ? POLLOUT : 0));
    if (events == 0) continue;
    polled_.push_back({stream->fd(), events, 0});
    polled_rank_.push_back(stream->rank());
  }
  const int ready = ::poll(polled_.data(), polled_.size(), timeout_ms);
  if (ready <= 0) {
    TESON_CHECK(ready == 0 || errno == EINTR || errno == EAGAIN || errno == ENOMEM, errno);
    return;
  }
  woken_ = polled_[0].revents != 0;
  for (std::size_t i = 1; i < polled_.size(); ++i) {
    const short events = polled_[i].revents;
    if (events == 0) continue;
    const int rank = polled_rank_[i];
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) readable_[static_cast<std::size_t>(rank)] = 1;
    if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      hung_up_[static_cast<std::size_t>(rank)] = 1;
      new_loss_ = true;
    }
    if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0) stream_of(rank).writable();
  }
}

}  // namespace teson::comm
