// The transport: checksums, proofs, messages, lanes, strangers, lines that break.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "crc32c.hpp"
#include "hub.hpp"
#include "secret.hpp"
#include "syncline/wire.hpp"
#include "worker.hpp"

using namespace syncline::wire;

namespace {

constexpr double kLong = 120.0;

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string hex(const Digest& digest) {
    std::string text;
    for (const std::uint8_t byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

void checksums() {
    CHECK(crc32c_by(Crc::table, 0, "123456789", 9) == 0xe3069283u);
    std::mt19937 random(7);
    std::vector<std::uint8_t> data(40000);
    for (auto& byte : data) byte = static_cast<std::uint8_t>(random());
    for (const std::size_t size : {0u, 1u, 7u, 8u, 100u, 1023u, 1024u, 1535u, 6143u, 6144u, 6145u, 39999u}) {
        const auto all = crc32c_by(Crc::table, 0, data.data() + 1, size);
        CHECK(crc32c_by(Crc::table, crc32c_by(Crc::table, 0, data.data() + 1, size / 3), data.data() + 1 + size / 3,
                        size - size / 3) == all);
        if (has_hardware_crc()) CHECK(crc32c_by(Crc::hardware, 0, data.data() + 1, size) == all);
    }
}

void proofs() {
    CHECK(hex(sha256(bytes_of("abc"))) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex(sha256(bytes_of(""))) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    // RFC 4231, cases 2 and 6
    CHECK(hex(hmac(bytes_of("Jefe"), "what do ya want ", bytes_of("for nothing?"))) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(hmac(std::vector<std::uint8_t>(131, 0xaa), "", bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

struct World {
    std::vector<std::unique_ptr<Wire>> wires;

    World(int size, int rails, int threads, int connections = 1, double stall_s = 0.2, std::uint32_t lead_bytes = 2u << 20) {
        for (int rank = 0; rank < size; ++rank) {
            Options options;
            options.rank = rank;
            options.size = size;
            for (int rail = 0; rail < rails; ++rail) options.rails.push_back({"127.0.0." + std::to_string(rail + 1), ""});
            options.secret = bytes_of("a secret of at least sixteen bytes");
            options.threads = threads;
            options.connections = connections;
            options.frame_bytes = 4096;
            options.stall_s = stall_s;
            options.lead_bytes = lead_bytes;
            wires.push_back(std::make_unique<Wire>(options));
        }
        for (int one = 0; one < size; ++one) {
            for (int other = 0; other < size; ++other) {
                if (one == other) continue;
                std::vector<Endpoint> endpoints;
                const auto ports = at(other).ports();
                for (std::size_t k = 0; k < ports.size(); ++k) {
                    endpoints.push_back({"127.0.0." + std::to_string(k + 1), ports[k]});
                }
                at(one).connect(other, endpoints);
            }
        }
        for (auto& wire : wires) CHECK(wire->wait_connected(kLong));
    }
    Wire& at(int rank) { return *wires[static_cast<std::size_t>(rank)]; }
};

void messages() {
    World world(3, 2, 2);
    std::vector<std::uint8_t> data(100000);
    for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<std::uint8_t>(k * 7);
    for (std::uint32_t round = 0; round < 5; ++round) {
        std::vector<std::uint8_t> room(data.size());
        // Some are sent before they are asked for.
        if (round % 2 == 0) world.at(1).open(9, 0, room.data(), room.size());
        world.at(0).send(9, 1, data.data(), data.size(), 0);
        if (round % 2 == 1) {
            CHECK(world.at(0).finish(9, kLong).status == Status::fine);  // it is there, though nobody asked
            world.at(1).open(9, 0, room.data(), room.size());
        }
        CHECK(world.at(1).wait(9, 0, kLong).status == Status::fine);
        CHECK(room == data);
        CHECK(world.at(0).finish(9, kLong).status == Status::fine);
    }
    std::vector<std::uint8_t> small(10);
    world.at(2).open(1, 0, small.data(), small.size());
    CHECK(world.at(2).wait(1, 0, 0.01).status == Status::late);
    world.at(0).send(1, 2, data.data(), data.size(), 0);
    CHECK(world.at(2).wait(1, 0, kLong).status == Status::disagreed);
    for (const LineReport& line : world.at(0).lines()) CHECK(line.up && line.wrong_frames == 0);
    world.at(1).close(kLong);
    world.at(2).open(3, 1, small.data(), small.size());
    const Outcome closed = world.at(2).wait(3, 1, kLong);
    CHECK(closed.status == Status::lost);
    CHECK(closed.text.find("closed") != std::string::npos || closed.text.find("ended") != std::string::npos);
}

// Peers are kept level to the byte, or not at all; all that is sent arrives, also when one of them has gone.
void levelled(std::uint32_t lead_bytes) {
    std::vector<std::vector<std::uint8_t>> data, rooms;  // in use until the wires have ended
    World world(4, 1, 2, 1, 0.2, lead_bytes);
    for (std::size_t k = 1; k < 4; ++k) {
        data.emplace_back(k * 300001, static_cast<std::uint8_t>(k));
        rooms.emplace_back(data.back().size());
    }
    for (int round = 0; round < 3; ++round) {
        for (std::size_t k = 0; k < 3; ++k) {
            const int peer = static_cast<int>(k) + 1;
            world.at(peer).open(4, 0, rooms[k].data(), rooms[k].size());
            world.at(0).send(4, peer, data[k].data(), data[k].size(), 0);
        }
        for (std::size_t k = 0; k < 3; ++k) {
            CHECK(world.at(static_cast<int>(k) + 1).wait(4, 0, kLong).status == Status::fine);
            CHECK(rooms[k] == data[k]);
        }
        CHECK(world.at(0).finish(4, kLong).status == Status::fine);
    }
    world.at(1).close(kLong);  // nobody may wait for who has gone
    world.at(0).send(7, 1, data[2].data(), data[2].size(), 0);
    world.at(2).open(6, 0, rooms[1].data(), rooms[1].size());
    world.at(0).send(6, 2, data[1].data(), data[1].size(), 0);
    CHECK(world.at(2).wait(6, 0, kLong).status == Status::fine);
    CHECK(rooms[1] == data[1]);
    CHECK(world.at(0).finish(6, kLong).status == Status::fine);
}

LaneSpec spec_of(int size, std::int64_t count, bool int8) {
    LaneSpec spec;
    spec.tag = 5;
    for (int k = 0; k <= size; ++k) spec.bounds.push_back(std::min<std::int64_t>(count, k * ((count / size + 511) / 256 * 256)));
    spec.bounds.back() = count;
    for (int k = 0; k < size; ++k) {
        const std::int64_t n = spec.bounds[static_cast<std::size_t>(k) + 1] - spec.bounds[static_cast<std::size_t>(k)];
        spec.payload_bytes.push_back(int8 ? 4 * ((n + 511) / 512) + n : 4 * n);
    }
    if (int8) {
        spec.coder.family = Coder::Family::block;
        spec.coder.quantiser = {8, 256};
    }
    spec.ends = {count / 2, count};
    return spec;
}

float value(int rank, std::int64_t i, int step) { return static_cast<float>((i * 31 + rank * 17 + step) % 101 - 50); }

// Average on every rank, some steps, and compare: plain exactly, int8 within its error and equal on all ranks.
void lanes(int size, int rails, int threads, bool int8, bool feedback) {
    World world(size, rails, threads, 2);
    const std::int64_t count = 30001;
    std::vector<std::unique_ptr<Lane>> made;
    std::vector<std::vector<float>> values(static_cast<std::size_t>(size)), residuals(values.size());
    for (int rank = 0; rank < size; ++rank) {
        LaneSpec spec = spec_of(size, count, int8);
        spec.origin = rank;
        made.push_back(world.at(rank).lane(spec));
        residuals[static_cast<std::size_t>(rank)].resize(static_cast<std::size_t>(count));
    }
    for (int step = 0; step < 4; ++step) {
        const bool troubled = step == 2;
        for (int rank = 0; rank < size; ++rank) {
            auto& own = values[static_cast<std::size_t>(rank)];
            own.resize(static_cast<std::size_t>(count));
            for (std::int64_t i = 0; i < count; ++i) own[static_cast<std::size_t>(i)] = value(rank, i, step);
            if (troubled && rank == 1) own[static_cast<std::size_t>(count) - 3] = std::numeric_limits<float>::infinity();
            Posting posting;
            posting.values = own.data();
            posting.residual = feedback ? residuals[static_cast<std::size_t>(rank)].data() : nullptr;
            posting.sequence = static_cast<std::uint32_t>(step);
            posting.step = static_cast<std::uint32_t>(step);
            made[static_cast<std::size_t>(rank)]->post(posting);
        }
        for (int rank = 0; rank < size; ++rank) {
            Lane& lane = *made[static_cast<std::size_t>(rank)];
            const Outcome reduced = lane.wait_reduced(kLong), done = lane.wait_done(kLong);
            if (troubled) {
                CHECK(reduced.status == Status::troubled && done.status == Status::troubled);
                CHECK(reduced.rank == 1 && reduced.parameter == 1);
                continue;
            }
            CHECK(reduced.status == Status::fine && done.status == Status::fine);
            CHECK(!lane.spans().empty());
        }
        if (troubled) continue;
        bool equal = true, right = true;
        for (std::int64_t i = 0; i < count; ++i) {
            float due = value(0, i, step);
            for (int rank = 1; rank < size; ++rank) due += value(rank, i, step);
            due /= static_cast<float>(size);
            for (int rank = 0; rank < size; ++rank) {
                const float got = values[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
                equal = equal && got == values[0][static_cast<std::size_t>(i)];
                right = right && std::abs(got - due) <= (int8 ? 2.0f : 1e-4f);
            }
        }
        CHECK(equal);
        CHECK(right);
    }
    made.clear();
}

void disagreement() {
    World world(2, 1, 1);
    std::vector<float> values(1000, 1.0f), other(1000, 1.0f);
    LaneSpec one = spec_of(2, 1000, false), two = one;
    two.layout = 7;
    const auto a = world.at(0).lane(one), b = world.at(1).lane(two);
    Posting posting;
    posting.values = values.data();
    a->post(posting);
    posting.values = other.data();
    b->post(posting);
    CHECK(a->wait_reduced(kLong).status == Status::disagreed);
    const Outcome found = b->wait_reduced(kLong);
    CHECK(found.status == Status::disagreed && found.text == "parameters of the bucket is 0 and 0x7 was due");
}

int socket_to(std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
}

void strangers() {
    World world(2, 1, 1);
    const std::uint16_t port = world.at(0).ports()[0];
    for (int k = 0; k < 3; ++k) {
        const int fd = socket_to(port);
        const std::string said(k == 0 ? 100 : 32, static_cast<char>('A' + k));
        CHECK(write(fd, said.data(), said.size()) == static_cast<ssize_t>(said.size()));
        char answer[64];
        ssize_t got = 1;
        while (got > 0) got = read(fd, answer, sizeof answer);
        close(fd);
    }
    while (world.at(0).num_strangers() < 3) std::this_thread::yield();
    CHECK(world.at(0).num_strangers() == 3);
    std::vector<std::uint8_t> data(10, 3), room(10);
    world.at(1).open(1, 0, room.data(), room.size());
    world.at(0).send(1, 1, data.data(), data.size(), 0);
    CHECK(world.at(1).wait(1, 0, kLong).status == Status::fine);
    CHECK(room == data);
    CHECK(world.at(0).finish(1, kLong).status == Status::fine);
}

void departures() {
    World world(3, 1, 1);
    std::vector<std::uint8_t> room(10);
    world.at(0).open(1, 2, room.data(), room.size());
    world.wires[2].reset();
    CHECK(world.at(0).wait(1, 2, kLong).status == Status::lost);
    world.at(1).open(1, 2, room.data(), room.size());
    CHECK(world.at(1).wait(1, 2, kLong).status == Status::lost);
    world.at(0).open(2, 1, room.data(), room.size());
    std::thread breaker([&] { world.at(0).break_off("enough"); });
    const Outcome ended = world.at(0).wait(2, 1, kLong);
    breaker.join();
    CHECK(ended.status == Status::closed && ended.text == "enough");
}

class Room : public Listener {
   public:
    Part place(std::uint32_t, int, std::uint32_t) override { return {bytes.data(), bytes.size()}; }
    void arrived(std::uint32_t, int, std::uint32_t) override { ++num_arrived; }
    void sent(std::uint32_t, int) override {}
    std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(8);
    int num_arrived = 0;
};

// A reader has found a frame right, and before it says so its place is taken away: the bytes are asked for again.
void places_taken_away() {
    Options options;
    options.rank = 0;
    options.size = 2;
    options.rails.push_back({"127.0.0.1", ""});
    options.secret = bytes_of("a secret of at least sixteen bytes");
    const auto hub = std::make_shared<Hub>(options);
    Line& line = *hub->lines[0];
    Room first, next;
    std::uint8_t nothing = 0;  // a message without a prefix
    FrameHeader header{};
    header.length = header.total = 8;
    header.sequence = 1;
    Claim claim;
    {
        const std::lock_guard hold(hub->mutex);
        hub->open(1, 0, &first, 0, {&nothing, 0});
    }
    CHECK(hub->begin_frame(line, header, claim));
    CHECK(claim.to[1].data == first.bytes.data());
    {
        const std::lock_guard hold(hub->mutex);
        CHECK(hub->unopen(1, 0, &first));
        hub->open(1, 0, &next, 0, {&nothing, 0});
    }
    hub->end_frame(line, header, claim, Arrival::right, nullptr);
    CHECK(first.num_arrived == 0 && next.num_arrived == 0);
    CHECK(line.agains == std::vector<std::uint64_t>{1} && line.acks.empty());
    const std::vector<std::uint8_t> again = bytes_of("8 bytes!");
    Claim none;
    CHECK(hub->begin_frame(line, header, none));
    std::copy(again.begin(), again.end(), next.bytes.begin());
    hub->end_frame(line, header, none, Arrival::right, nullptr);
    CHECK(next.num_arrived == 1 && next.bytes == again && line.acks.size() == 1);
}

void paces() {
    Pace pace;
    pace.begin(0.0);
    pace.brought(1'000'000, 65536, 0.1);
    CHECK(std::abs(pace.rate_Bps() - 1e7) < 1.0);
    pace.begin(1.0);
    pace.brought(1056, 65536, 1.04);  // so little says nothing of how fast it is
    CHECK(std::abs(pace.rate_Bps() - 1e7) < 1.0);
    pace.begin(2.0);
    pace.brought(131072, 65536, 2.2);
    CHECK(std::abs(pace.rate_Bps() - 655360.0) < 1.0);
    CHECK(std::abs(pace.takes_s(655360.0, 2.2) - 1.0) < 1e-9 && std::abs(pace.takes_s(655360.0, 6.2) - 0.5) < 1e-9);
    pace.at_most(1e6, 7.0);
    CHECK(std::abs(pace.rate_Bps() - 655360.0) < 1.0);
    pace.at_most(1e5, 7.0);
    CHECK(std::abs(pace.rate_Bps() - 1e5) < 1.0);
}

// A line that would bring a frame long after another has brought everything gets none, unless the other fails.
void slow_lines() {
    Options options;
    options.rank = 0;
    options.size = 2;
    options.stall_s = 20.0;
    options.rails = {{"127.0.0.1", ""}, {"127.0.0.2", ""}};
    options.secret = bytes_of("a secret of at least sixteen bytes");
    const auto hub = std::make_shared<Hub>(options);
    Line &slow = *hub->lines[0], &fast = *hub->lines[1];
    std::vector<std::uint8_t> payload(8 * options.frame_bytes);
    std::uint8_t nothing = 0;
    Room room;
    {
        const std::lock_guard hold(hub->mutex);
        slow.is_up = fast.is_up = true;
        slow.pace.begin(now_s() - 131.0);
        slow.pace.brought(options.frame_bytes, 1, now_s());
        fast.pace.begin(now_s() - 1.0);
        fast.pace.brought(10'000'000, 1, now_s());
        hub->send(1, 0, 0, &room, 0, {&nothing, 0}, {payload.data(), payload.size()});
    }
    std::vector<Going> given;
    CHECK(!hub->next_going(slow, slow.epoch, given, payload.size()) && given.empty());
    hub->next_going(fast, fast.epoch, given, payload.size());
    CHECK(given.size() >= 2 && given.size() < 8 && slow.in_flight == 0);
    hub->unwritten(given, 0);
    {
        const std::lock_guard hold(hub->mutex);
        fast.is_stalled = true;
    }
    hub->next_going(slow, slow.epoch, given, payload.size());
    CHECK(!given.empty() && slow.in_flight > 0);
    hub->unwritten(given, 0);
}

// Memory that was given back last is had first, and no more is kept than lanes may need at once.
void rooms() {
    Rooms all;
    all.expect(64, 2);
    Rooms::Room one = all.take(64), two = all.take(64), three = all.take(64);
    const std::uint8_t *first = one.get(), *second = two.get();
    CHECK(first != second);
    all.give(std::move(one), 64);
    all.give(std::move(two), 64);
    all.give(std::move(three), 64);  // one more than expected: not kept
    CHECK(all.take(128).get() != second);
    two = all.take(64);
    one = all.take(64);
    CHECK(two.get() == second && one.get() == first);
    all.give(std::move(one), 64);
    all.expect(64, -2);
    all.give(std::move(two), 64);
    all.give(nullptr, 64);
    CHECK(all.num_free() == 0);
}

}  // namespace

SUITE(wire) {
    checksums();
    proofs();
    messages();
    for (const std::uint32_t lead_bytes : {0u, 1u, 100000u}) levelled(lead_bytes);
    lanes(2, 1, 1, false, false);
    lanes(4, 2, 2, false, false);
    lanes(3, 1, 3, true, false);
    lanes(4, 2, 2, true, true);
    lanes(3, 1, 2, false, true);
    disagreement();
    strangers();
    departures();
    places_taken_away();
    paces();
    slow_lines();
    rooms();
}
