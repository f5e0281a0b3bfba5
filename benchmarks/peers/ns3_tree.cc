// ns-3's side of the comparison of completion times: a tree with one path a pair, one JSON line on stdout.
//
//   ns3_tree TRANSPORT PATTERN LEAVES HOSTS_PER_LEAF TRUNK_GBPS MESSAGE_BYTES MARK_PACKETS UNTIL_S step|gentle
//
// TRANSPORT is dctcp, or line: datagrams at line rate into queues that nothing fills, which is what RoCE is while nobody is
// paused. Switches mark with RED, as a step or, as ns-3 has it by default, gently; hosts queue without marks. Every packet is acknowledged at once.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/nix-vector-helper.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint32_t kPayloadBytes = 4096;
constexpr const char* kRate = "400Gbps";
// Connections open one after another before anyone sends.
constexpr int kSendAt_us = 5000;

struct Receipt {
    uint64_t wanted = 0, got = 0;
    double took_s = -1;
    void Add(Ptr<const Packet> packet, const Address&) {
        got += packet->GetSize();
        if (got >= wanted && took_s < 0) took_s = Simulator::Now().GetSeconds() - kSendAt_us * 1e-6;
    }
};

void SetDefaults(uint32_t markPackets, bool gentle) {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kPayloadBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(5)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(MicroSeconds(100)));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(kPayloadBytes));
    Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize("200000p")));
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(markPackets));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(markPackets));
    // ns-3's default is gentle RED, which only marks everything at twice MaxTh: no step.
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(gentle));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 10) {
        std::cerr << "usage: ns3_tree TRANSPORT PATTERN LEAVES HOSTS_PER_LEAF TRUNK_GBPS MESSAGE_BYTES MARK_PACKETS UNTIL_S step|gentle\n";
        return 2;
    }
    const bool line = std::string(argv[1]) == "line";
    const std::string pattern = argv[2];
    const uint32_t leaves = std::stoul(argv[3]), perLeaf = std::stoul(argv[4]), count = leaves * perLeaf;
    const std::string trunk = std::string(argv[5]) + "Gbps";
    const uint64_t messageBytes = std::stoull(argv[6]);
    SetDefaults(line ? 150000 : std::stoul(argv[7]), std::string(argv[9]) == "gentle");

    NodeContainer host, leaf, spine;
    host.Create(count);
    leaf.Create(leaves);
    spine.Create(1);
    InternetStackHelper stack;
    Ipv4NixVectorHelper routing;
    stack.SetRoutingHelper(routing);
    stack.InstallAll();

    PointToPointHelper cable;
    cable.SetDeviceAttribute("Mtu", UintegerValue(kPayloadBytes + 100));
    cable.SetChannelAttribute("Delay", StringValue("1us"));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    TrafficControlHelper marking, plain;
    marking.SetRootQueueDisc("ns3::RedQueueDisc");
    plain.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("200000p"));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    std::vector<Ipv4Address> address(count);
    const auto connect = [&](Ptr<Node> a, Ptr<Node> b, const std::string& rate, bool hostEnd) {
        cable.SetDeviceAttribute("DataRate", StringValue(rate));
        const NetDeviceContainer ends = cable.Install(a, b);
        (hostEnd ? plain : marking).Install(ends.Get(0));
        marking.Install(ends.Get(1));
        const Ipv4Address first = addresses.Assign(ends).GetAddress(0);
        addresses.NewNetwork();
        return first;
    };
    for (uint32_t h = 0; h < count; ++h) address[h] = connect(host.Get(h), leaf.Get(h / perLeaf), kRate, true);
    for (uint32_t l = 0; l < leaves; ++l) connect(leaf.Get(l), spine.Get(0), trunk, false);

    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    if (pattern == "permutation") {
        for (uint32_t h = 0; h < count; ++h) pairs.emplace_back(h, (h + count / 2) % count);
    } else if (pattern == "incast") {
        for (uint32_t h = 0; h < count / 2; ++h) pairs.emplace_back(count / 2 + h, 0);
    } else {
        for (uint32_t shift = 1; shift < count; ++shift)
            for (uint32_t h = 0; h < count; ++h) pairs.emplace_back(h, (h + shift) % count);
    }
    std::vector<Receipt> receipt(pairs.size());
    const char* kind = line ? "ns3::UdpSocketFactory" : "ns3::TcpSocketFactory";
    for (uint32_t i = 0; i < pairs.size(); ++i) {
        const auto [from, to] = pairs[i];
        const auto port = static_cast<uint16_t>(1000 + i);
        PacketSinkHelper sink(kind, InetSocketAddress(Ipv4Address::GetAny(), port));
        receipt[i].wanted = messageBytes;
        sink.Install(host.Get(to)).Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Receipt::Add, &receipt[i]));
        const Ptr<Socket> socket = Socket::CreateSocket(host.Get(from), TypeId::LookupByName(kind));
        const InetSocketAddress goal(address[to], port);
        Simulator::Schedule(MicroSeconds(line ? 0 : 2 * i), [socket, goal] { socket->Connect(goal); });
        if (line) {
            // Each message as fast as its host's port; messages of one host take turns, packet by packet.
            const Time packetTime = DataRate(kRate).CalculateBytesTxTime(kPayloadBytes + 30);
            for (uint64_t sent = 0, n = 0; sent < messageBytes; sent += kPayloadBytes, ++n) {
                const auto piece = static_cast<uint32_t>(std::min<uint64_t>(kPayloadBytes, messageBytes - sent));
                Simulator::Schedule(MicroSeconds(kSendAt_us) + packetTime * n,
                                    [socket, piece] { socket->Send(Create<Packet>(piece)); });
            }
            continue;
        }
        Simulator::Schedule(MicroSeconds(kSendAt_us), [socket, messageBytes] {
            for (uint64_t left = messageBytes; left > 0;) {
                const auto piece = static_cast<uint32_t>(std::min<uint64_t>(left, 125000));
                socket->Send(Create<Packet>(piece));
                left -= piece;
            }
        });
    }
    Simulator::Stop(Seconds(std::stod(argv[8])));
    Simulator::Run();
    std::cout << "{\"took_s\": [";
    for (std::size_t i = 0; i < receipt.size(); ++i) std::cout << (i ? ", " : "") << receipt[i].took_s;
    std::cout << "]}\n";
    Simulator::Destroy();
    return 0;
}
