#include "teson/net/resumption.h"

#include <utility>

namespace teson::net {

void Resumption::on_cut(const std::shared_ptr<Channel>& channel) {
  const std::weak_ptr<Channel> weak = channel;
  const auto give_up = [weak] {
    if (const auto cut = weak.lock()) cut->close();
  };
  // What was to resume it may be cut too: it is the same time that runs.
  if (!since_) {
    since_ = now();
    timer_ = loop_.after(window, give_up);
  }
  if (!dial_) return;
  redial_ = std::make_unique<Redial>(loop_, *dial_, *since_ + window,
                                     [weak, give_up](Result<std::unique_ptr<Channel>> fresh) {
                                       if (!fresh) return give_up();
                                       if (const auto cut = weak.lock())
                                         cut->resume(std::move(*fresh));
                                     });
}

Duration Resumption::on_resumed() {
  const Duration cut = since_ ? now() - *since_ : Duration::zero();
  cancel();
  return cut;
}

void Resumption::cancel() {
  since_.reset();
  timer_.cancel();
  redial_.reset();
}

}  // namespace teson::net
