#include "teson/actor/proc_ticket.h"

#include <charconv>

#include <fmt/format.h>

#include "teson/net/codec.h"

namespace teson::actor::detail {

namespace {

constexpr std::string_view prefix = "ticket:";

}  // namespace

std::string ticket_text(const ProcTicket& ticket) {
  std::string text(prefix);
  for (const char c : net::encode(ticket))
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

bool is_ticket(std::string_view text) {
  return text.starts_with(prefix);
}

Result<ProcTicket> read_ticket(std::string_view text) {
  const auto damaged =
      fail(ErrorKind::invalid,
           "the ticket is damaged, or of another version: take it as it was given, "
           "one word that begins with 'ticket:'");
  if (!is_ticket(text)) return damaged;
  text.remove_prefix(prefix.size());
  if (text.size() % 2 != 0) return damaged;
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t at = 0; at < text.size(); at += 2) {
    std::uint8_t byte = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 2, byte, 16);
    if (error != std::errc() || end != text.data() + at + 2) return damaged;
    bytes.push_back(static_cast<char>(byte));
  }
  auto ticket = net::decode<ProcTicket>(bytes);
  if (!ticket) return damaged;
  return ticket;
}

}  // namespace teson::actor::detail
