// ns-3's side of the packet comparison: DCTCP over a leaf-spine, permutation or incast, one JSON line on stdout.
//
//   ns3_leaf_spine PATTERN LEAVES HOSTS_PER_LEAF SPINES MESSAGE_BYTES MARK_PACKETS UNTIL_S
//
// Nix-vector routing: one shortest path a pair, the cheapest lookup ns-3 has. Queues mark with RED set to a step, as DCTCP
// asks. Counted: the simulator's events and, at every device, packets that left it (acknowledgements too). CPU seconds are
// those of Simulator::Run alone.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/nix-vector-helper.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint32_t kPayloadBytes = 4096;
constexpr const char* kRate = "400Gbps";
constexpr const char* kDelay = "1us";
// Connections open one after another before anyone sends: queues over the threshold drop what cannot be marked, and
// requests to connect cannot.
constexpr int kSendAt_us = 500;

uint64_t hops = 0;
uint64_t finished = 0;
double lastEnd_s = 0;

void LeftDevice(Ptr<const Packet>) { ++hops; }

/** Count what one receiver got; note the time when its message is whole. */
struct Receipt {
    uint64_t wanted = 0;
    uint64_t got = 0;
    void Add(Ptr<const Packet> packet, const Address&) {
        got += packet->GetSize();
        if (got == wanted) {
            ++finished;
            lastEnd_s = Simulator::Now().GetSeconds() - kSendAt_us * 1e-6;
        }
    }
};

void SetDefaults(uint32_t markPackets) {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kPayloadBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    // A window of one packet waits for the timer of delayed acknowledgements: 200 ms unless told otherwise.
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(10)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(5)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(MicroSeconds(100)));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(kPayloadBytes));
    Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize("8000p")));
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(markPackets));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(markPackets));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8) {
        std::cerr << "usage: ns3_leaf_spine PATTERN LEAVES HOSTS_PER_LEAF SPINES MESSAGE_BYTES MARK_PACKETS UNTIL_S\n";
        return 2;
    }
    const std::string pattern = argv[1];
    const uint32_t leaves = std::stoul(argv[2]), perLeaf = std::stoul(argv[3]), spines = std::stoul(argv[4]);
    const uint64_t messageBytes = std::stoull(argv[5]);
    const uint32_t count = leaves * perLeaf;
    SetDefaults(std::stoul(argv[6]));

    NodeContainer host, leaf, spine;
    host.Create(count);
    leaf.Create(leaves);
    spine.Create(spines);
    InternetStackHelper stack;
    Ipv4NixVectorHelper routing;
    stack.SetRoutingHelper(routing);
    stack.InstallAll();

    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue(kRate));
    cable.SetDeviceAttribute("Mtu", UintegerValue(kPayloadBytes + 78));
    cable.SetChannelAttribute("Delay", StringValue(kDelay));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    TrafficControlHelper marking;
    marking.SetRootQueueDisc("ns3::RedQueueDisc", "LinkBandwidth", StringValue(kRate), "LinkDelay", StringValue(kDelay));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    std::vector<Ipv4Address> address(count);
    const auto connect = [&](Ptr<Node> a, Ptr<Node> b) {
        const NetDeviceContainer ends = cable.Install(a, b);
        marking.Install(ends);
        for (uint32_t i = 0; i < 2; ++i) ends.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&LeftDevice));
        const Ipv4Address first = addresses.Assign(ends).GetAddress(0);
        addresses.NewNetwork();
        return first;
    };
    for (uint32_t h = 0; h < count; ++h) address[h] = connect(host.Get(h), leaf.Get(h / perLeaf));
    for (uint32_t l = 0; l < leaves; ++l)
        for (uint32_t s = 0; s < spines; ++s) connect(leaf.Get(l), spine.Get(s));

    // The same pairs as the other side: everyone to the host half of the fabric on, or 64 hosts of other leaves to the first.
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    if (pattern == "permutation")
        for (uint32_t h = 0; h < count; ++h) pairs.emplace_back(h, (h + count / 2) % count);
    else
        for (uint32_t h = 0; h < count / 2; ++h) pairs.emplace_back(count / 2 + h, 0);
    std::vector<Receipt> receipt(pairs.size());
    for (uint32_t i = 0; i < pairs.size(); ++i) {
        const auto [from, to] = pairs[i];
        const auto port = static_cast<uint16_t>(1000 + i);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
        const ApplicationContainer receiver = sink.Install(host.Get(to));
        receipt[i].wanted = messageBytes;
        receiver.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Receipt::Add, &receipt[i]));
        const Ptr<Socket> socket = Socket::CreateSocket(host.Get(from), TcpSocketFactory::GetTypeId());
        const InetSocketAddress goal(address[to], port);
        Simulator::Schedule(MicroSeconds(2 * i), [socket, goal] { socket->Connect(goal); });
        Simulator::Schedule(MicroSeconds(kSendAt_us), [socket, messageBytes] {
            for (uint64_t left = messageBytes; left > 0;) {
                const auto piece = static_cast<uint32_t>(std::min<uint64_t>(left, 125000));
                socket->Send(Create<Packet>(piece));
                left -= piece;
            }
        });
    }
    Simulator::Stop(Seconds(std::stod(argv[7])));
    const std::clock_t began = std::clock();
    Simulator::Run();
    const double cpu_s = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    std::cout << "{\"events\": " << Simulator::GetEventCount() << ", \"packet_hops\": " << hops
              << ", \"messages\": " << pairs.size() << ", \"finished\": " << finished << ", \"last_end_s\": " << lastEnd_s
              << ", \"cpu_s\": " << cpu_s << "}\n";
    Simulator::Destroy();
    return 0;
}
