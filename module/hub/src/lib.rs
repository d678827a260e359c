//! An Azure IoT Edge module client.
