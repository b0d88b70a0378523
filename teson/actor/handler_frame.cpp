#include "teson/actor/handler_frame.h"

#include <utility>

#include <fmt/format.h>

#include "teson/base/log.h"
#include "teson/net/codec.h"

namespace teson::actor::detail {

namespace {

thread_local HandlerFrame* current_frame = nullptr;

}  // namespace

Result<MeshPlace> SpawnPlace::in(const Region& slice) const {
  const auto index = slice.index_of(rank);
  if (!index) {
    return fail(ErrorKind::invalid,
                fmt::format("expected a slice with rank {}, found {}", rank, slice.describe()));
  }
  return MeshPlace{*index, slice.ranks(), slice.shape()};
}

HandlerFrame::HandlerFrame(const std::shared_ptr<ReplyOutlet>& outlet, const SpawnPlace& place,
                           const Envelope& envelope)
    : outlet_(&outlet), place_(&place), envelope_(&envelope), outer_(current_frame) {
  current_frame = this;
}

HandlerFrame::HandlerFrame(const Error& ended) : ended_(&ended), outer_(current_frame) {
  current_frame = this;
}

HandlerFrame::~HandlerFrame() {
  current_frame = outer_;
}

HandlerFrame* HandlerFrame::current() {
  return current_frame;
}

bool HandlerFrame::owes(const ReplyOutlet* outlet, std::uint64_t proc, std::uint64_t call) const {
  return handling() && outlet_->get() == outlet && envelope_->from == proc &&
         envelope_->call == call;
}

MeshPlace HandlerFrame::message_place() const {
  if (envelope_->slice_bytes > 0) {
    const auto place = [&]() -> Result<MeshPlace> {
      TESON_TRY(auto layout, net::decode<RegionLayout>(envelope_->slice()));
      TESON_TRY(const Region slice, Region::make(std::move(layout)));
      return place_->in(slice);
    }();
    if (place) return *place;
    log_warning("actor", "a message's slice: {}", place.error().describe());
  }
  return *place_->in(place_->region);
}

}  // namespace teson::actor::detail
