//! An Azure IoT Edge device without the device: workload API, edgeHub and the cloud behind it.
