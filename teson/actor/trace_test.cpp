// Traces: what a process remembers, and the picture that is made of it.
#include "teson/actor/trace.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "teson/actor/handler_frame.h"
#include "teson/actor/testing/mesh_test_support.h"
#include "teson/actor/trace_ring.h"
#include "teson/actor/wire.h"

namespace teson::actor {
namespace {

using namespace testing;
using Json = nlohmann::json;

TEST(TraceRing, keeps_the_last_events_and_counts_those_it_lost) {
  detail::TraceRing ring;
  ring.sent(1, {});
  ring.begin(100);
  EXPECT_TRUE(ring.on());
  for (std::uint64_t i = 1; i <= 250; ++i)
    ring.sent(1, {.actor = 1, .trace = {.trace = 7, .message = i}});
  const auto report = ring.end();
  EXPECT_FALSE(ring.on());
  ASSERT_EQ(report.events.size(), 100U);
  EXPECT_EQ(report.lost, 150U);
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(report.events[i].trace.message, 151 + i);
  ring.sent(1, {});
  EXPECT_TRUE(ring.end().events.empty()) << "it is off";
}

TEST(TraceRing, is_bounded_whatever_is_asked_for) {
  detail::TraceRing ring;
  ring.begin(std::size_t{1} << 60);
  for (std::size_t i = 0; i < detail::TraceRing::events_max + 10; ++i)
    ring.sent(1, {});
  const auto report = ring.end();
  EXPECT_EQ(report.events.size(), detail::TraceRing::events_max);
  EXPECT_EQ(report.lost, 10U);
}

TEST(TraceRing, takes_events_of_many_threads_while_it_is_switched) {
  detail::TraceRing ring;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!over)
        if (ring.on()) ring.sent(1, {});
    });
  }
  for (int round = 0; round < 50; ++round) {
    ring.begin(64);
    std::this_thread::sleep_for(200us);
    EXPECT_LE(ring.end().events.size(), 64U);
  }
  over = true;
  for (auto& thread : threads)
    thread.join();
}

using TraceTest = MeshTest;

/// The events of one kind ("ph").
std::vector<Json> events_of(const Json& trace, std::string_view phase) {
  std::vector<Json> found;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

TEST_F(TraceTest, shows_handlers_and_the_messages_between_them) {
  auto mesh = start({{"rank", 2}});
  const auto workers = mesh.spawn<Worker>("worker", "");
  std::vector<std::vector<int>> heard(2);
  std::atomic<int> count{0};
  const auto listener =
      system.host<Listener>("listener", std::make_unique<ListenerActor>(heard, count));
  (void)workers.call<&Worker::add>(0).wait();
  // A call from here to rank 0, from there to the listener here; and a slow handler in rank 1.
  std::thread busy([&] {
    std::this_thread::sleep_for(100ms);
    for (int i = 0; i < 3; ++i)
      (void)workers.at(0).call_one<&Worker::ask>(listener, i).wait();
    (void)workers.at(1).cast<&Worker::nap>(1500);
  });
  const auto text = system.trace(600ms);
  busy.join();
  ASSERT_TRUE(text) << text.error().describe();
  EXPECT_FALSE(contains(*text, "\n")) << "one line";
  const Json trace = Json::parse(*text);
  EXPECT_EQ(trace["otherData"]["events_lost"], 0);
  EXPECT_TRUE(trace["otherData"]["no_answer"].empty());

  std::map<std::string, int> slices;
  std::map<std::string, std::set<std::string>> traces;
  for (const auto& slice : events_of(trace, "X")) {
    ++slices[slice["name"]];
    traces[slice["name"]].insert(slice["args"]["trace"].get<std::string>());
    if (slice["name"] == "Worker::ask" || slice["name"] == "call Worker::ask") {
      EXPECT_EQ(slice["pid"], slice["cat"] == "send" ? ::getpid() : mesh.pid(0));
    }
    if (slice["name"] == "Worker::nap") {
      EXPECT_EQ(slice["pid"], mesh.pid(1));
      EXPECT_EQ(slice["args"]["running"], true) << "it has not ended";
    }
  }
  EXPECT_EQ(slices, (std::map<std::string, int>{{"call Worker::ask", 3},
                                                {"cast Worker::nap", 1},
                                                {"Worker::ask", 3},
                                                {"Worker::nap", 1},
                                                {"Listener::twice", 3}}));
  EXPECT_EQ(traces["Worker::ask"].size(), 3U);
  EXPECT_EQ(traces["Worker::ask"], traces["Listener::twice"]) << "a trace spans processes";
  EXPECT_EQ(traces["Worker::ask"], traces["call Worker::ask"]);
  // An arrow for each of the three calls, three calls within handlers, and the cast.
  const auto from = events_of(trace, "s");
  const auto to = events_of(trace, "f");
  ASSERT_EQ(from.size(), 7U);
  ASSERT_EQ(to.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(from[i]["id"], to[i]["id"]);
    EXPECT_EQ(from[i]["args"]["trace"], to[i]["args"]["trace"]);
    EXPECT_NE(from[i]["pid"], to[i]["pid"]);
    const bool still_runs = to[i]["pid"] == mesh.pid(1);
    EXPECT_TRUE(still_runs || from[i]["ts"] <= to[i]["ts"]);
  }
  std::set<std::string> names;
  for (const auto& name : events_of(trace, "M"))
    names.insert(name["args"]["name"].get<std::string>().substr(0, 14));
  EXPECT_TRUE(names.contains("worker"));
  EXPECT_TRUE(names.contains("listener"));
  EXPECT_TRUE(names.contains("workers rank 0"));
}

TEST_F(TraceTest, a_replaced_process_is_in_it_and_a_dead_one_is_named) {
  auto mesh = start({{"rank", 1}});
  mesh.on_failure([&mesh](const ProcExit&) { EXPECT_TRUE(mesh.replace(0)); });
  const auto worker = mesh.spawn<Worker>("worker", "");
  (void)worker.call<&Worker::add>(0).wait();
  std::thread meanwhile([&] {
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(mesh.kill(0, SIGKILL));
    for (int i = 0; i < 200; ++i) {
      (void)worker.call<&Worker::add>(1).wait();
      std::this_thread::sleep_for(5ms);
    }
  });
  const auto text = system.trace(1500ms);
  meanwhile.join();
  ASSERT_TRUE(text) << text.error().describe();
  const Json trace = Json::parse(*text);
  ASSERT_EQ(trace["otherData"]["no_answer"].size(), 1U);
  EXPECT_TRUE(contains(trace["otherData"]["no_answer"][0].get<std::string>(), "SIGKILL"));
  EXPECT_TRUE(std::ranges::any_of(events_of(trace, "X"), [&](const Json& slice) {
    return slice["name"] == "Worker::add" && slice["pid"] == mesh.pid(0);
  }));
}

TEST_F(TraceTest, one_trace_at_a_time_and_nothing_is_kept_after_it) {
  auto mesh = start({{"rank", 1}});
  const auto worker = mesh.spawn<Worker>("worker", "");
  std::thread first([&] { EXPECT_TRUE(system.trace(300ms)); });
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(system.trace(10ms).error().kind, ErrorKind::overloaded);
  first.join();
  for (int i = 0; i < 100; ++i)
    (void)worker.call<&Worker::add>(1).wait();
  const auto empty = system.trace(20ms);
  ASSERT_TRUE(empty) << empty.error().describe();
  EXPECT_TRUE(events_of(Json::parse(*empty), "X").empty());
}

TEST(ChromeTrace, slices_of_a_row_do_not_overlap_and_names_are_escaped) {
  using detail::ProcTrace;
  using detail::TraceEvent;
  ProcTrace proc{.pid = 5, .host = "n", .name = "a \"name\"\n"};
  proc.report.actors = {{.actor = 3, .name = "\xff", .class_name = "C", .endpoints = {"f"}}};
  const auto handled = [](std::int64_t begin, std::int64_t duration, bool running) {
    return TraceEvent{.what = TraceEvent::What::handled,
                      .running = running,
                      .begin_ns = begin,
                      .duration_ns = duration,
                      .actor = 3};
  };
  proc.report.events = {handled(1000, 4000, false), handled(3000, 9000, true)};
  for (int i = 0; i < 3; ++i)
    proc.report.events.push_back({.begin_ns = 7000 + i * 50, .thread = 9});
  ProcTrace twin = proc;
  twin.host = "m";
  const Json trace = Json::parse(detail::chrome_trace({proc, twin}));
  std::map<std::pair<int, int>, double> ends;
  std::set<int> pids;
  for (const auto& slice : events_of(trace, "X")) {
    double& end = ends[{slice["pid"], slice["tid"]}];
    EXPECT_GE(slice["ts"].get<double>(), end);
    end = slice["ts"].get<double>() + slice["dur"].get<double>();
    pids.insert(slice["pid"].get<int>());
  }
  EXPECT_EQ(ends.size(), 4U);
  EXPECT_EQ(pids.size(), 2U) << "two machines may have the same process number";
  EXPECT_EQ((ends[{5, 1}]), 12.0) << "the handler that still runs ends at its own end";
}

}  // namespace
}  // namespace teson::actor
