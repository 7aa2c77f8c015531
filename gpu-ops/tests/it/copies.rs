//! Copies and fills through device buffers, on every device under test.

use crate::support::{devices, pattern, pool};

#[test]
fn bytes_survive_the_round_trip() {
    // Sizes around the limits of direct copies, staging chunks and several chunks a thread.
    let sizes = [
        1,
        255,
        4097,
        (256 << 10) + 1,
        (4 << 20) - 1,
        4 << 20,
        (4 << 20) + 3,
        (70 << 20) + 5,
    ];
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        for bytes in sizes {
            if device.info().emulated && bytes > 16 << 20 {
                continue;
            }
            let sent = pattern(bytes, bytes as u64);
            let buffer = pool.allocate(bytes + 7, "round trip").unwrap();
            assert_eq!(buffer.ptr().0 % 256, 0);
            buffer.fill(&stream, 0xee).unwrap();
            buffer.upload(&stream, 3, &sent).unwrap();
            let got: Vec<u8> = buffer.download_vec(&stream).unwrap();
            assert_eq!(got[..3], [0xee; 3]);
            assert!(got[3..3 + bytes] == sent[..], "{bytes} bytes on {device:?}");
            assert_eq!(got[3 + bytes..], [0xee; 4]);
        }
    }
}

#[test]
fn sources_may_be_reused_after_an_upload() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        for bytes in [64, 200 << 10, 20 << 20] {
            let first = pattern(bytes, 1);
            let mut source = first.clone();
            let a = pool.allocate(bytes, "a").unwrap();
            let b = pool.allocate(bytes, "b").unwrap();
            a.upload(&stream, 0, &source).unwrap();
            source.fill(0x11);
            b.upload(&stream, 0, &source).unwrap();
            source.fill(0x22);
            assert!(a.download_vec::<u8>(&stream).unwrap() == first);
            assert!(b.download_vec::<u8>(&stream).unwrap() == vec![0x11; bytes]);
        }
    }
}

#[test]
fn fills_and_device_copies() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        let a = pool.allocate(1000, "a").unwrap();
        let b = pool.allocate(1000, "b").unwrap();
        a.upload_values(&stream, 0, &(0..250_u32).collect::<Vec<_>>())
            .unwrap();
        b.fill(&stream, 0).unwrap();
        b.fill_range(&stream, 996, 4, 0xff).unwrap();
        b.copy_from(&stream, 4, &a, 400, 40).unwrap();
        let got: Vec<u32> = b.download_vec(&stream).unwrap();
        let mut expected = vec![0_u32; 250];
        expected[249] = u32::MAX;
        for (i, value) in expected[1..11].iter_mut().enumerate() {
            *value = 100 + i as u32;
        }
        assert_eq!(got, expected);
        assert_eq!(
            a.download_values::<u64>(&stream, 8, 2).unwrap(),
            [2 | 3 << 32, 4 | 5 << 32]
        );
    }
}

#[test]
fn ranges_outside_a_buffer_are_refused() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        let buffer = pool.allocate(100, "small").unwrap();
        let other = pool.allocate(100, "other").unwrap();
        let mut hole = [0; 101];
        assert!(buffer.upload(&stream, 0, &[0; 101]).is_err());
        assert!(buffer.upload(&stream, 100, &[0]).is_err());
        assert!(buffer.upload(&stream, usize::MAX, &[0]).is_err());
        assert!(buffer.download(&stream, 0, &mut hole).is_err());
        assert!(buffer.fill_range(&stream, 50, 51, 0).is_err());
        assert!(
            buffer
                .download_values::<u64>(&stream, 0, usize::MAX)
                .is_err()
        );
        assert!(buffer.copy_from(&stream, 1, &other, 0, 100).is_err());
        assert!(buffer.copy_from(&stream, 0, &other, 1, 100).is_err());
        assert!(buffer.copy_from(&stream, 0, &buffer, 50, 50).is_err());
        let error = buffer.upload(&stream, 90, &[0; 20]).unwrap_err();
        assert!(
            error.to_string().contains("20 bytes at offset 90"),
            "{error}"
        );
        buffer.upload(&stream, 100, &[]).unwrap();
        assert_eq!(buffer.ptr_at(100).unwrap().0, buffer.ptr().0 + 100);
    }
}
