// Numbers of ns-3 3.37 that docs/links.md compares with camu's formulas; one CSV line each:
// what,link,parameter,stations,value. It links against ns-3 (GPL-2.0) and is not part of camu.
#include "ns3/basic-energy-source-helper.h"
#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/constant-position-mobility-model.h"
#include "ns3/he-configuration.h"
#include "ns3/lr-wpan-error-model.h"
#include "ns3/lr-wpan-helper.h"
#include "ns3/lr-wpan-net-device.h"
#include "ns3/mobility-helper.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/packet-socket-address.h"
#include "ns3/packet-socket-client.h"
#include "ns3/packet-socket-helper.h"
#include "ns3/packet-socket-server.h"
#include "ns3/pointer.h"
#include "ns3/qos-txop.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/table-based-error-rate-model.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-mpdu.h"
#include "ns3/wifi-net-device.h"
#include "ns3/wifi-phy.h"
#include "ns3/wifi-radio-energy-model-helper.h"
#include "ns3/yans-wifi-helper.h"
#include <cmath>
#include <cstdio>
#include <ctime>

using namespace ns3;

static void Print(const char* what, const char* link, double parameter, int stations, double value)
{
    std::printf("%s,%s,%g,%d,%.9g\n", what, link, parameter, stations, value);
    std::fflush(stdout);
}

static WifiTxVector TxVector(bool ax, int mcs)
{
    WifiTxVector vector;
    vector.SetMode(WifiMode((ax ? "HeMcs" : "HtMcs") + std::to_string(mcs)));
    vector.SetPreambleType(ax ? WIFI_PREAMBLE_HE_SU : WIFI_PREAMBLE_HT_MF);
    vector.SetChannelWidth(20);
    vector.SetGuardInterval(800);
    vector.SetNss(1);
    return vector;
}

static void Formulas()
{
    auto lrwpan = CreateObject<LrWpanErrorModel>();
    for (double db = -2; db <= 3; db += 0.25)
    {
        double success = lrwpan->GetChunkSuccessRate(std::pow(10, db / 10), 8 * 127);
        Print("delivery", "802.15.4", db, 1, success);
    }
    auto wifi = CreateObject<TableBasedErrorRateModel>();
    for (bool ax : {false, true})
    {
        const char* name = ax ? "wifi-ax" : "wifi-n";
        for (int mcs = 0; mcs < (ax ? 12 : 8); ++mcs)
        {
            WifiTxVector vector = TxVector(ax, mcs);
            Time air = WifiPhy::CalculateTxDuration(1536, vector, WIFI_PHY_BAND_5GHZ);
            Print("air_us", name, mcs, 1, air.GetNanoSeconds() / 1e3);
            double low = -10, high = 50;
            for (int i = 0; i < 60; ++i)
            {
                double db = (low + high) / 2, snr = std::pow(10, db / 10);
                double good = wifi->GetChunkSuccessRate(vector.GetMode(), vector, snr, 8 * 1458);
                (good < 0.9 ? low : high) = db;
            }
            Print("threshold_db", name, mcs, 1, high);
            for (double above = 0; above <= 2; above += 0.25)
            {
                double snr = std::pow(10, (high + above) / 10);
                double good = wifi->GetChunkSuccessRate(vector.GetMode(), vector, snr, 8 * 1458);
                Print("delivery", (std::string(name) + "-mcs" + std::to_string(mcs)).c_str(),
                      above, 1, good);
            }
        }
    }
}

static void WifiCell(bool ax, int mcs, int stations, double seconds)
{
    std::clock_t began = std::clock();
    NodeContainer nodes;
    nodes.Create(stations + 1);
    auto places = CreateObject<ListPositionAllocator>();
    for (int i = 0; i <= stations; ++i)
    {
        places->Add(ns3::Vector(i ? std::cos(i) : 0, i ? std::sin(i) : 0, 0));
    }
    MobilityHelper mobility;
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);
    WifiHelper wifi;
    wifi.SetStandard(ax ? WIFI_STANDARD_80211ax : WIFI_STANDARD_80211n);
    wifi.SetRemoteStationManager(
        "ns3::ConstantRateWifiManager", "DataMode",
        StringValue((ax ? "HeMcs" : "HtMcs") + std::to_string(mcs)), "ControlMode",
        StringValue("OfdmRate24Mbps"));
    auto channel = YansWifiChannelHelper::Default();
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    phy.Set("ChannelSettings", StringValue("{36, 20, BAND_5GHZ, 0}"));
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac", "BE_MaxAmpduSize", UintegerValue(0));
    NetDeviceContainer devices = wifi.Install(phy, mac, nodes);
    wifi.AssignStreams(devices, 100 * stations + mcs);
    PacketSocketHelper sockets;
    sockets.Install(nodes);
    auto server = CreateObject<PacketSocketServer>();
    for (int i = 0; i <= stations; ++i)
    {
        auto device = DynamicCast<WifiNetDevice>(devices.Get(i));
        if (ax)
        {
            device->GetHeConfiguration()->SetGuardInterval(NanoSeconds(800));
        }
        PointerValue txop;
        device->GetMac()->GetAttribute("BE_Txop", txop);
        txop.Get<QosTxop>()->SetAifsn(2); // DIFS
        PacketSocketAddress address;
        address.SetSingleDevice(device->GetIfIndex());
        address.SetProtocol(1);
        address.SetPhysicalAddress(devices.Get(0)->GetAddress());
        if (i == 0)
        {
            server->SetLocal(address);
            nodes.Get(0)->AddApplication(server);
            continue;
        }
        auto client = CreateObject<PacketSocketClient>();
        client->SetAttribute("PacketSize", UintegerValue(1498)); // an MPDU of 1536 bytes
        client->SetAttribute("MaxPackets", UintegerValue(0));
        client->SetAttribute("Interval", TimeValue(MicroSeconds(ax ? 120 : 200)));
        client->SetRemote(address);
        nodes.Get(i)->AddApplication(client);
        client->SetStartTime(MicroSeconds(10 * i));
    }
    BasicEnergySourceHelper source;
    source.Set("BasicEnergySourceInitialEnergyJ", DoubleValue(1e6));
    auto sources = source.Install(nodes);
    WifiRadioEnergyModelHelper radio;
    auto models = radio.Install(devices, sources);
    uint64_t frames = 0; // acknowledged: the receiver of 802.11ax may hold frames back for order
    for (int i = 1; i <= stations; ++i)
    {
        auto device = DynamicCast<WifiNetDevice>(devices.Get(i));
        device->GetMac()->TraceConnectWithoutContext(
            "AckedMpdu",
            Callback<void, Ptr<const WifiMpdu>>([&frames](Ptr<const WifiMpdu> frame) {
                frames += frame->GetHeader().IsQosData() && Simulator::Now() > Seconds(1);
            }));
    }
    Simulator::Stop(Seconds(1 + seconds));
    Simulator::Run();
    double joules = models.Get(1)->GetTotalEnergyConsumption() / (1 + seconds) * seconds;
    const char* name = ax ? "wifi-ax" : "wifi-n";
    Print("frame_us", name, mcs, stations, 1e6 * seconds / frames);
    Print("mj_per_frame", name, mcs, stations, 1e3 * joules * stations / frames);
    Simulator::Destroy();
    double took = double(std::clock() - began) / CLOCKS_PER_SEC;
    Print("processor_seconds", name, mcs, stations, took);
}

static void LrWpanCell(int stations, double seconds)
{
    std::clock_t began = std::clock();
    NodeContainer nodes;
    nodes.Create(stations + 1);
    auto places = CreateObject<ListPositionAllocator>();
    for (int i = 0; i <= stations; ++i)
    {
        places->Add(ns3::Vector(i ? std::cos(i) : 0, i ? std::sin(i) : 0, 0));
    }
    MobilityHelper mobility;
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);
    LrWpanHelper helper(true);
    NetDeviceContainer devices = helper.Install(nodes);
    helper.AssociateToPan(devices, 7);
    helper.AssignStreams(devices, 100 * stations);
    uint64_t delivered = 0, sent = 0;
    for (int i = 1; i <= stations; ++i)
    {
        auto device = DynamicCast<LrWpanNetDevice>(devices.Get(i));
        auto leader = DynamicCast<LrWpanNetDevice>(devices.Get(0));
        auto mac = device->GetMac();
        device->GetPhy()->TraceConnectWithoutContext(
            "PhyTxBegin", Callback<void, Ptr<const Packet>>([&sent](Ptr<const Packet>) {
                sent += Simulator::Now() > Seconds(1);
            }));
        auto target = leader->GetMac()->GetShortAddress();
        auto send = [mac, target] {
            McpsDataRequestParams request;
            request.m_dstPanId = 7;
            request.m_srcAddrMode = SHORT_ADDR;
            request.m_dstAddrMode = SHORT_ADDR;
            request.m_dstAddr = target;
            request.m_txOptions = TX_OPTION_ACK;
            mac->McpsDataRequest(request, Create<Packet>(116));
        };
        mac->SetMcpsDataConfirmCallback(
            Callback<void, McpsDataConfirmParams>([send, &delivered](McpsDataConfirmParams answer) {
                delivered += answer.m_status == IEEE_802_15_4_SUCCESS &&
                             Simulator::Now() > Seconds(1);
                Simulator::ScheduleNow(send);
            }));
        Simulator::Schedule(MicroSeconds(500 * i), send);
    }
    Simulator::Stop(Seconds(1 + seconds));
    Simulator::Run();
    Print("frame_us", "802.15.4", 0, stations, 1e6 * seconds / delivered);
    Print("tries", "802.15.4", 0, stations, double(sent) / delivered);
    Simulator::Destroy();
    double took = double(std::clock() - began) / CLOCKS_PER_SEC;
    Print("processor_seconds", "802.15.4", 0, stations, took);
}

int main()
{
    RngSeedManager::SetSeed(1);
    // Of full queues, frames grow old; for each that is dropped after a try, a station of
    // 802.11ax would contend with a request for a block acknowledgement.
    Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(Seconds(60)));
    Formulas();
    for (int stations : {1, 2, 3, 4, 5, 7, 10, 12, 15, 20, 25, 30, 40, 50})
    {
        LrWpanCell(stations, 60);
    }
    for (int stations : {1, 2, 3, 5, 10, 20})
    {
        for (int mcs : {0, 4, 7})
        {
            WifiCell(false, mcs, stations, 2);
        }
        for (int mcs : {0, 4, 7, 9})
        {
            WifiCell(true, mcs, stations, 2);
        }
    }
    return 0;
}
